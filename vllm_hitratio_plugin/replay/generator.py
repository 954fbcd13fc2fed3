"""Conversations put on a clock: starts, think times, growing prompts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vllm_hitratio_plugin.replay.arrivals import Arrivals
from vllm_hitratio_plugin.replay.law import Law
from vllm_hitratio_plugin.replay.pools.pool import block_count
from vllm_hitratio_plugin.replay.sharegpt_like import MIN_TURNS, sharegpt_like
from vllm_hitratio_plugin.replay.trace import Prompt, Trace
from vllm_hitratio_plugin.replay.turns import Turns, prompt_lengths

_IDS_PER_CONVERSATION = 1 << 40  # more blocks than any prompt has


@dataclass(frozen=True)
class Traffic:
    """How conversations come and go."""

    arrivals: Arrivals
    """Conversation starts, λ0."""

    think: Law
    """W^sample: seconds from a prompt to the next one of the same conversation."""

    response: Law | None = None
    """W^E2E: seconds until the answer is complete; then W = max(W^E2E, W^sample) (80). None: W = W^sample."""


@dataclass(frozen=True)
class Generated:
    """A generated trace and what is known of how it came about."""

    trace: Trace
    """Ends with the last start: later prompts would be measured with arrivals stopped (appendix E)."""

    conversations: Sequence[Turns]
    """The measured conversations (all but the warm-up)."""

    window: tuple[float, float]
    """Starts of the first and of the last measured conversation, t_1 and t_L, seconds."""

    interarrivals: list[float]
    """Realized W of the measured conversations whose later prompt falls into the window, seconds: what an experiment of
    this length can know of F, since long ones are censored."""


def generate(
    conversations: Sequence[Turns],
    traffic: Traffic,
    *,
    block_size: int,
    seed: int = 0,
    warmup: int = 0,
    name: str = "generated",
) -> Generated:
    """Start the conversations in the order given, the first ``warmup`` of them outside the measurement.

    The turn-j prompt is everything said before and the new message. Block ids are integers of a range of its own for
    each conversation: nothing is shared, and every prompt extends the one before. Starts, think times and response
    times come from three independent streams of the seed, so changing one law leaves the draws of the others.

    ``ValueError`` where no conversation is left to measure.
    """
    if not 0 <= warmup < len(conversations):
        raise ValueError(f"{warmup} of {len(conversations)} conversations for the warm-up leave none to measure")
    start_stream, think_stream, response_stream = (
        np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(3)
    )
    starts = traffic.arrivals.draw(start_stream, len(conversations))
    total = sum(len(turns) for turns in conversations)
    waits = traffic.think.draw(think_stream, total)
    if traffic.response is not None:
        waits = list(map(max, waits, traffic.response.draw(response_stream, total)))
    window = (float(starts[warmup]), float(starts[-1]))

    prompts: list[Prompt] = []
    realized: list[float] = []
    following = iter(waits)
    for number, (turns, start) in enumerate(zip(conversations, starts.tolist(), strict=True)):
        time = start
        first_id = number * _IDS_PER_CONVERSATION
        label = str(number)
        for turn, tokens in zip(turns, prompt_lengths(turns), strict=True):
            blocks = range(first_id, first_id + block_count(tokens, block_size))
            prompts.append(Prompt(time, tokens, blocks, label, turn.response_tokens))
            wait = next(following)
            time += wait
            if number >= warmup and turn is not turns[-1] and time <= window[1]:
                realized.append(wait)
    prompts = sorted((prompt for prompt in prompts if prompt.time <= window[1]), key=lambda prompt: prompt.time)
    trace = Trace(name=name, block_size=block_size, prompts=prompts, real_times=False)
    return Generated(trace, conversations[warmup:], window, realized)


def draw_conversations(source: Sequence[Turns] | None, count: int, seed: int = 0) -> list[Turns]:
    """``count`` conversations of two turns or more, drawn from ``source``; None draws from the ShareGPT-like law.

    Each of the source comes at most once as long as there are enough. ``ValueError`` where none is long enough.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    if source is None:
        return sharegpt_like(rng, count)
    eligible = [turns for turns in source if len(turns) >= MIN_TURNS]
    if not eligible:
        raise ValueError(f"no conversation has {MIN_TURNS} turns or more")
    chosen = rng.choice(len(eligible), size=count, replace=count > len(eligible))
    return [eligible[index] for index in chosen.tolist()]
