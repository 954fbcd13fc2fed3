"""A progress bar on stderr, where somebody can see it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(total: int, unit: str) -> Iterator[Callable[[int], object] | None]:
    """Give a function that is told how much more was done; None where stderr is no terminal, or without tqdm."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield None
        return
    with tqdm(total=total, unit=f" {unit}", unit_scale=True, leave=False, file=sys.stderr) as bar:
        yield bar.update
