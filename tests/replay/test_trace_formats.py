"""Readers: what they make of good lines, and the one sentence they have for bad ones."""

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from vllm_hitratio_plugin.replay.formats.source import Format, read_source
from vllm_hitratio_plugin.replay.trace import Prompt, Trace, TraceError
from vllm_hitratio_plugin.replay.turns import Turn

GOOD = {"timestamp": 1500, "input_length": 1000, "hash_ids": [1, 2], "output_length": 7}


def write(path: Path, *records: Any) -> str:
    path.write_text("".join(f"{record if isinstance(record, str) else json.dumps(record)}\n" for record in records))
    return str(path)


def trace_of(*arguments: Any, **named: Any) -> Trace:
    trace = read_source(*arguments, **named)
    assert isinstance(trace, Trace)
    return trace


def test_mooncake_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.jsonl",
        {**GOOD, "session_id": "s"},
        {"timestamp": 0, "input_length": 513, "hash_ids": ["x", "y"], "chat_id": 7},
        {"timestamp": 2000.5, "input_length": 1536, "hash_ids": [1, 2, 3]},
    )
    trace = trace_of(path)
    assert trace.block_size == 512
    assert trace.real_times
    assert list(trace.prompts) == [
        Prompt(0.0, 513, ["x", "y"], "7", None),
        Prompt(1.5, 1000, [1, 2], "s", 7),
        Prompt(2.0005, 1536, [1, 2, 3], None, None),
    ]
    assert trace.duration == 2.0005


def test_the_block_size_follows_from_the_lengths(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"timestamp": 0, "input_length": 1000, "hash_ids": [1, 2]})
    assert trace_of(one).block_size == 512  # 500 to 999 are possible
    assert trace_of(one, block_size=700).block_size == 700
    odd = write(
        tmp_path / "odd", GOOD | {"input_length": 1399}, GOOD | {"input_length": 701}, GOOD | {"input_length": 1400}
    )
    assert trace_of(odd).block_size == 700
    assert trace_of(odd, block_size=1400).block_size == 1400


def test_an_absurd_length_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    turns = write(tmp_path / "turns", [[1, 2]], [[99_999_000, 1_000], [5, 5]])
    with pytest.raises(TraceError, match=r"turns, line 2: the last prompt, .* is over 100,000,000 tokens"):
        read_source(turns)
    assert read_source(write(tmp_path / "most", [[99_999_000, 995], [5, 5]]))
    mooncake = write(tmp_path / "mooncake", GOOD, GOOD | {"input_length": 100_000_001})
    lmcache = write(tmp_path / "lmcache", {"t": 0, "in": 100_000_064, "h": [[0, 1_562_501]]})
    for path, line in ((mooncake, 2), (lmcache, 1)):
        with pytest.raises(TraceError, match=f"line {line}: Expected `int` <= 100000000"):
            read_source(path)


def test_larger_blocks_are_named_by_their_last_small_block(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t",
        {"timestamp": 0, "input_length": 2047, "hash_ids": [1, 2, 3, 4]},
        {"timestamp": 0, "input_length": 1024, "hash_ids": [1, 2]},
        {"timestamp": 0, "input_length": 511, "hash_ids": [9]},
    )
    trace = trace_of(path, block_size=1024)
    assert [list(prompt.blocks) for prompt in trace.prompts] == [[2], [2], []]
    for wrong in (256, 768):
        with pytest.raises(TraceError, match=f"blocks of 512 tokens cannot be made into blocks of {wrong}"):
            read_source(path, block_size=wrong)


def test_lmcache_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t",
        {"kind": "a", "conv": "c", "turn": 1, "t": 1760995377.5, "in": 200, "out": 5, "h": [[7, 1], [20, 2]]},
        {"kind": "a", "conv": "c", "turn": 0, "t": 1760995376.0, "in": 64, "out": 9, "h": [[7, 1]]},
    )
    trace = trace_of(path)
    assert trace.block_size == 64
    assert list(trace.prompts) == [Prompt(0.0, 64, [7], "a/c", 9), Prompt(1.5, 200, [7, 20, 21], "a/c", 5)]


def test_turn_lengths(tmp_path: Path) -> None:
    assert read_source(write(tmp_path / "t", [[3, 4], [5, 6]], [[0, 1]])) == [[Turn(3, 4), Turn(5, 6)], [Turn(0, 1)]]


def test_gzip_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = write(tmp_path / "t", GOOD)
    packed = tmp_path / "no-suffix-needed"
    packed.write_bytes(gzip.compress(Path(plain).read_bytes()))
    expected = trace_of(plain).prompts
    assert trace_of(str(packed)).prompts == expected
    for content in (Path(plain).read_bytes(), packed.read_bytes()):
        stream = cast(Any, io.BufferedReader(cast(Any, io.BytesIO(content))))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        assert trace_of("-").prompts == expected


def test_blank_lines_count_as_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "t", GOOD, "", GOOD, "oops")
    with pytest.raises(TraceError, match=r"t, line 4: not JSON"):
        read_source(path)


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ("{", "not JSON"),
        ("[1]", "Expected `object`, got `array`"),
        ("NaN", "Expected `object`, got `float`"),
        (GOOD | {"timestamp": None}, "Expected `float`, got `null` - at `$.timestamp`"),
        (GOOD | {"timestamp": "12"}, "Expected `float`, got `str` - at `$.timestamp`"),
        (
            '{"timestamp": Infinity, "input_length": 1000, "hash_ids": [1, 2]}',
            "Expected `float` <= 1e+18 - at `$.timestamp`",
        ),
        (GOOD | {"input_length": 0}, "Expected `int` >= 1 - at `$.input_length`"),
        (GOOD | {"input_length": 5.5}, "Expected `int`, got `float` - at `$.input_length`"),
        (GOOD | {"input_length": True}, "Expected `int`, got `bool` - at `$.input_length`"),
        (GOOD | {"hash_ids": 3}, "Expected `array`, got `int` - at `$.hash_ids`"),
        (GOOD | {"hash_ids": []}, "Expected `array` of length >= 1 - at `$.hash_ids`"),
        (GOOD | {"hash_ids": [1, {}]}, "Expected `int | str`, got `object` - at `$.hash_ids[1]`"),
        (GOOD | {"hash_ids": [1, 2, 3]}, "3 hash_ids for 1000 tokens do not go with blocks of 500 to 999 tokens"),
        (GOOD | {"output_length": -1}, "Expected `int` >= 0 - at `$.output_length`"),
        (GOOD | {"session_id": [1]}, "Expected `int | str | null`, got `array` - at `$.session_id`"),
        ({"timestamp": 1, "hash_ids": [1]}, "Object missing required field `input_length`"),
    ],
)
def test_bad_mooncake_lines_are_named(tmp_path: Path, record: Any, complaint: str) -> None:
    path = write(tmp_path / "t.jsonl", GOOD, record)
    with pytest.raises(TraceError) as error:
        read_source(path)
    assert str(error.value).startswith(f"{path}, line 2: ")
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    ("kind", "record", "complaint"),
    [
        ("lmcache", {"t": 1, "in": 64, "h": [[1, 2]]}, "2 full blocks of 64 do not go with 64 tokens"),
        ("lmcache", {"t": 1, "in": 64, "h": [[1, -1]]}, "Expected `int` >= 0 - at `$.h[0][1]`"),
        ("lmcache", {"t": 1, "in": 64, "h": [1]}, "Expected `array`, got `int` - at `$.h[0]`"),
        ("lmcache", {"t": 1, "in": 10**30, "h": [[1, 10**29]]}, "- at `$.in`"),
        ("turn-lengths", [], "Expected `array` of length >= 1"),
        ("turn-lengths", {}, "Expected `array`, got `object`"),
        ("turn-lengths", [[1]], "Expected `array` of length 2, got 1 - at `$[0]`"),
        ("turn-lengths", [[1, -2]], "Expected `int` >= 0 - at `$[0][1]`"),
        ("turn-lengths", [[1, "2"]], "Expected `int`, got `str` - at `$[0][1]`"),
        ("mooncake", [[1, 2]], "Expected `object`, got `array`"),
        ("auto", {"prompt": "hello"}, "no known trace format"),
        ("auto", [1, 2], "no known trace format"),
    ],
)
def test_bad_lines_of_other_formats_are_named(tmp_path: Path, kind: Format, record: Any, complaint: str) -> None:
    path = write(tmp_path / "t.jsonl", record)
    with pytest.raises(TraceError) as error:
        read_source(path, kind)
    assert str(error.value).startswith(f"{path}, line 1: ")
    assert complaint in str(error.value)


def test_unreadable_files(tmp_path: Path) -> None:
    empty, broken, binary = tmp_path / "empty", tmp_path / "broken.gz", tmp_path / "binary"
    empty.write_text("\n \n")
    broken.write_bytes(gzip.compress(json.dumps(GOOD).encode() * 99)[:60])
    binary.write_bytes(json.dumps(GOOD).encode() + b"\n\xff\xfe\n")
    for path, complaint in [
        (empty, "there is nothing in it"),
        (broken, "the gzip data are damaged or cut short"),
        (binary, "not UTF-8 text"),
        (tmp_path / "absent", "no such file or directory"),
        (tmp_path, "is a directory"),
    ]:
        with pytest.raises(TraceError) as error:
            read_source(str(path))
        assert str(error.value).startswith(str(path))
        assert complaint in str(error.value)
        assert "\n" not in str(error.value)


def test_public_traces(shared_traces: Path) -> None:
    mooncake = trace_of(str(shared_traces / "mooncake" / "conversation_trace.jsonl.gz"))
    assert (mooncake.block_size, len(mooncake.prompts)) == (512, 12_031)
    assert mooncake.duration == pytest.approx(3536.999)
    agents = trace_of(str(shared_traces / "lmcache-agent-trace" / "agent_requests_blk64.jsonl.gz"))
    assert (agents.block_size, len(agents.prompts)) == (64, 1619 - 53)
    assert agents.empty_prompts == 53
    assert len({prompt.conversation for prompt in agents.prompts}) == 69
