"""A file of conversations without times: turn lengths, or ShareGPT texts."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from vllm_hitratio_plugin.replay.formats.lines import Lines, parse_json
from vllm_hitratio_plugin.replay.formats.turn_lengths import read_turn_lengths
from vllm_hitratio_plugin.replay.trace import TraceError
from vllm_hitratio_plugin.replay.turns import Turn, Turns

Tokenize = Callable[[Sequence[str]], list[int]]
"""Texts to their numbers of tokens."""

_ANSWERS = frozenset({"gpt", "chatgpt", "assistant", "bing", "bard"})


class _Message(msgspec.Struct):
    value: str
    speaker: str | None = msgspec.field(name="from", default=None)


class _Entry(msgspec.Struct):
    conversations: list[_Message]


def read_conversations(path: str, tokenizer: str | None = None) -> tuple[list[Turns], int]:
    """Read turn lengths (JSONL), or ShareGPT texts with a ``tokenizer.json``: one JSON array, or one object per line.

    Returns the conversations, and how many entries held none (they ask nothing). Raises ``TraceError``
    with one sentence.
    """
    lines = Lines(path)
    content = list(lines)
    if not content:
        raise TraceError(f"{lines.name}: there is nothing in it")
    if content[0][1].strip() == "[" or content[0][1].lstrip().startswith("[{"):
        # One array, which pretty printers spread over many lines.
        array = parse_json(lines.name, content[0][0], "".join(line for _, line in content))
        records = [(number, record) for number, record in enumerate(array, start=1)]
        unit = "entry"
    else:
        records = [(number, parse_json(lines.name, number, line)) for number, line in content]
        unit = "line"
    if not any(isinstance(record, dict) for _, record in records):
        return read_turn_lengths(lines.name, records), 0
    if tokenizer is None:
        raise TraceError(f"{lines.name}: texts need a tokenizer to be counted in tokens")
    texts = _sharegpt(lines.name, unit, records, _tokenizer(tokenizer))
    conversations = [turns for turns in texts if turns]
    return conversations, len(texts) - len(conversations)


def _sharegpt(source: str, unit: str, records: Iterable[tuple[int, Any]], tokenize: Tokenize) -> list[Turns]:
    conversations: list[Turns] = []
    for number, record in records:
        try:
            messages = msgspec.convert(record, _Entry).conversations
        except msgspec.ValidationError as error:
            raise TraceError(f"{source}, {unit} {number}: {error}") from None
        lengths = tokenize([message.value for message in messages])
        conversations.append(_turns([message.speaker in _ANSWERS for message in messages], lengths))
    return conversations


def _turns(answers: Iterable[bool], lengths: Iterable[int]) -> list[Turn]:
    """Messages to turns: an answer ends its turn; what comes before it, an answer without a question too, is prompt."""
    turns: list[Turn] = []
    prompt = response = 0
    asked = answered = False
    for is_answer, length in zip(answers, lengths, strict=True):
        if is_answer and asked:
            response += length
            answered = True
            continue
        if answered:
            turns.append(Turn(prompt, response))
            prompt = response = 0
            asked = answered = False
        prompt += length
        asked = asked or not is_answer
    if asked:
        turns.append(Turn(prompt, response))
    return turns


def _tokenizer(path: str) -> Tokenize:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise TraceError("counting tokens needs the package 'tokenizers' (the extra 'tokenizer')") from None
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # the library raises bare Exception
        raise TraceError(f"{path}: not a tokenizer.json ({' '.join(str(error).split())})") from None

    def tokenize(texts: Sequence[str]) -> list[int]:
        return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    return tokenize
