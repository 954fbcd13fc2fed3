"""The load: multi-turn conversations that resemble ShareGPT, on a timetable that is fixed before it starts.

The law, with every draw from one seed:

- Conversations start as a Poisson process of rate λ0.
- Turns: M - 2 is negative binomial, cut at 37 turns, with the mean 4.47 and the variance 7.97 of the paper's ShareGPT
  sample (:func:`~vllm_hitratio_plugin.replay.sharegpt_like.sharegpt_like`).
- Messages and answers: log-normal tokens with σ = 1.3 and 0.8 and the means 90 and 380 of that law, both times
  ``LENGTH_SCALE``. A prompt, which is the whole history and the new message, then has about 600 tokens on average, so
  that two CPU cores keep up. Messages are cut at 2,048 tokens; a conversation ends early before a prompt of more than
  4,096 (1 in 5,000 does).
- Interarrival time of a conversation's prompts: exponential. As in the paper's (80) a prompt also waits for the answer
  before it; the driver sees to that, because a timetable does not know when answers come.

Tokens are random bytes, different in every conversation, so conversations share nothing. The answers in the history are
the timetable's own: the server plays the prefiller of a prefill-decode pair, whose answers are made elsewhere.

The timetable starts in its stationary state: conversations also start before time 0, and those still going on then send
their remaining turns. The warm-up only has to fill the cache and to make these conversations known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from examples.demo.settings import BLOCK_SIZE, MAX_MESSAGE_TOKENS, MAX_PROMPT_TOKENS
from vllm_hitratio_plugin.replay.arrivals import poisson
from vllm_hitratio_plugin.replay.generator import Traffic, generate
from vllm_hitratio_plugin.replay.law import exponential
from vllm_hitratio_plugin.replay.sharegpt_like import MAX_TURNS, sharegpt_like
from vllm_hitratio_plugin.replay.trace import Prompt, Trace
from vllm_hitratio_plugin.replay.turns import Turn, Turns, prompt_lengths

LENGTH_SCALE = 0.56
BYTES = 256


@dataclass(frozen=True)
class Timetable:
    """All prompts of the load, in order of time, seconds from its start."""

    trace: Trace
    """0 ≤ time < ``seconds``; ``Prompt.conversation`` is the conversation's number, for all of them."""
    conversations: Sequence[Turns]
    """By number, also those that ended before the start."""
    starts: Sequence[float]
    """When each conversation's first prompt comes; negative: before the load."""
    seconds: float
    seed: int

    def tokens(self, number: str) -> list[int]:
        """All token ids of a conversation, each in 0..255; every prompt is a prefix of them."""
        index = int(number)
        rng = np.random.default_rng((self.seed, 1, index))
        tokens: list[int] = rng.integers(0, BYTES, prompt_lengths(self.conversations[index])[-1]).tolist()
        return tokens

    def planned(self, begin: float, end: float) -> int:
        """Prompts in begin ≤ time < end."""
        return sum(begin <= prompt.time < end for prompt in self.trace.prompts)

    def started(self, begin: float, end: float) -> list[Turns]:
        """Conversations whose first prompt comes in begin ≤ time < end, whole."""
        return [
            turns
            for turns, start in zip(self.conversations, self.starts, strict=True)
            if begin <= start < end and turns
        ]


def identifier(number: str) -> str | None:
    """The id that the client sends: every other conversation has one, the rest are linked by their prefixes."""
    return f"conversation-{number}" if int(number) % 2 == 0 else None


def draw_timetable(seed: int, seconds: float, conversations_per_second: float, think_seconds: float) -> Timetable:
    """Draw the load of `seconds` seconds.

    Conversations start from 2 · 37 mean think times before 0 on, twice as long as the longest one lasts on average.
    """
    before = 2 * MAX_TURNS * think_seconds
    expected = conversations_per_second * (before + seconds)
    count = int(expected + 8 * np.sqrt(expected)) + 8
    conversations = [_scaled(turns) for turns in sharegpt_like(np.random.default_rng((seed, 0)), count)]
    traffic = Traffic(poisson(conversations_per_second), exponential(think_seconds))
    generated = generate(conversations, traffic, block_size=BLOCK_SIZE, seed=seed, name="sharegpt-like").trace
    starts: dict[str, float] = {}
    prompts: list[Prompt] = []
    for prompt in generated.prompts:
        time = prompt.time - before
        starts.setdefault(str(prompt.conversation), time)
        if 0 <= time < seconds:
            prompts.append(prompt._replace(time=time))
    return Timetable(
        trace=replace(generated, prompts=prompts),
        conversations=conversations,
        starts=[starts[str(number)] for number in range(count)],
        seconds=seconds,
        seed=seed,
    )


def _scaled(turns: Turns) -> Turns:
    shorter = [
        Turn(*(min(max(1, round(LENGTH_SCALE * tokens)), MAX_MESSAGE_TOKENS) for tokens in turn)) for turn in turns
    ]
    fitting = sum(tokens <= MAX_PROMPT_TOKENS for tokens in prompt_lengths(shorter))
    return shorter[:fitting]
