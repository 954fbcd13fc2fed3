"""Files of conversations: turn lengths and ShareGPT texts."""

import json
from pathlib import Path

import pytest

from vllm_hitratio_plugin.replay.formats.conversations import read_conversations
from vllm_hitratio_plugin.replay.trace import TraceError
from vllm_hitratio_plugin.replay.turns import Turn

CHAT = {
    "id": "x",
    "conversations": [
        {"from": "system", "value": "be kind now"},
        {"from": "human", "value": "one two"},
        {"from": "gpt", "value": "three four five six"},
        {"from": "human", "value": "seven"},
        {"from": "human", "value": "eight nine"},
        {"from": "gpt", "value": ""},
        {"from": "human", "value": "ten"},
    ],
}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tokenizer.json whose tokens are words."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)


@pytest.mark.parametrize("layout", ["array", "pretty", "lines"])
def test_sharegpt_texts(tmp_path: Path, words: str, layout: str) -> None:
    greeting = {"conversations": [{"from": "gpt", "value": "hello there"}, {"from": "human", "value": "hi"}]}
    entries = [CHAT, {"conversations": []}, greeting]
    path = tmp_path / "sharegpt.json"
    path.write_text(
        "\n".join(map(json.dumps, entries))
        if layout == "lines"
        else json.dumps(entries, indent=2 if layout == "pretty" else None)
    )
    conversations, empty = read_conversations(str(path), words)
    assert conversations == [[Turn(5, 4), Turn(3, 0), Turn(1, 0)], [Turn(3, 0)]]
    assert empty == 1


def test_turn_lengths_need_no_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text("[[1, 2]]\n[[3, 4], [5, 6]]\n")
    assert read_conversations(str(path)) == ([[Turn(1, 2)], [Turn(3, 4), Turn(5, 6)]], 0)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "there is nothing in it"),
        (json.dumps([CHAT]), "texts need a tokenizer"),
        ('[{"conversations": ', "line 1: not JSON"),
        ('{"conversations": []}\n{"conversations": [', "line 2: not JSON"),
        ("[[1, 2]]\n[3]", "line 2: Expected `array`, got `int`"),
    ],
)
def test_bad_files(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "t"
    path.write_text(content)
    with pytest.raises(TraceError, match=complaint):
        read_conversations(str(path))


def test_bad_entries_are_named(tmp_path: Path, words: str) -> None:
    path = tmp_path / "t"
    path.write_text(json.dumps([CHAT, {"conversations": [{"from": "human"}]}]))
    with pytest.raises(TraceError, match="entry 2: Object missing required field `value`"):
        read_conversations(str(path), words)


def test_a_bad_tokenizer_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    path = tmp_path / "t"
    path.write_text(json.dumps([CHAT]))
    for tokenizer in (path, tmp_path / "absent"):
        with pytest.raises(TraceError, match=r"not a tokenizer\.json"):
            read_conversations(str(path), str(tokenizer))
