"""YAML that people can read: texts of several lines as block scalars, nothing folded, keys in their order."""

from __future__ import annotations

from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def documents(header: str, *values: Any) -> str:
    """YAML documents, with `header` as a comment before them."""
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": float("inf")}
    return comment + "---\n".join(yaml.dump(value, Dumper=_Dumper, **options) for value in values)
