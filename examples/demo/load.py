"""Sends a timetable's prompts to a server, each at its time whatever the server does (open loop)."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp

from examples.demo.workload import Timetable, identifier
from vllm_hitratio_plugin.replay.trace import Prompt

REQUEST_TIMEOUT = 120.0

#: Seconds that a connection may idle: fewer than the 5 after which vLLM closes it, perhaps just as it is used again.
KEEP_ALIVE = 2.0

#: Seconds after its time from which on a prompt counts as sent late.
LATE = 0.1


@dataclass(frozen=True)
class Sent:
    """One prompt that was sent."""

    time: float
    """Seconds from the start of the load."""
    latency: float
    """Seconds until the whole answer."""
    late: bool
    """Sent late, and not because its conversation's previous answer was still to come (the paper's 80)."""
    error: str | None
    """Why there was no answer."""


@dataclass
class Tally:
    """What has been sent so far."""

    planned: int
    done: list[Sent] = field(default_factory=list)

    @property
    def failures(self) -> list[Sent]:
        return [each for each in self.done if each.error is not None]

    @property
    def answered(self) -> list[Sent]:
        return [each for each in self.done if each.error is None]


#: Called again and again during the load, with the seconds since its start.
Watch = Callable[[float, Tally], Awaitable[None]]


async def drive(timetable: Timetable, url: str, model: str, watch: Watch, period: float) -> Tally:
    """Send everything, wait for all answers, and return what happened.

    `watch` is called every `period` seconds; what it raises ends the load and is raised.
    """
    tally, began = Tally(len(timetable.trace.prompts)), time.monotonic()
    tokens: dict[str, list[int]] = {}
    latest: dict[str, asyncio.Task[None]] = {}

    async def until(moment: float) -> None:
        await asyncio.sleep(max(0.0, began + moment - time.monotonic()))

    async def send(prompt: Prompt, number: str, previous: "asyncio.Task[None] | None") -> None:
        waits = previous is not None and not previous.done()
        if previous is not None:
            await previous
        sent = time.monotonic()
        error = await _post(session, f"{url}/v1/completions", model, tokens[number][: prompt.tokens], number)
        late = sent - began - prompt.time > LATE and not waits
        tally.done.append(Sent(sent - began, time.monotonic() - sent, late, error))

    async def send_all() -> None:
        for prompt in timetable.trace.prompts:
            await until(prompt.time)
            number = str(prompt.conversation)
            if number not in tokens:
                tokens[number] = timetable.tokens(number)
            latest[number] = asyncio.create_task(send(prompt, number, latest.get(number)))
        await asyncio.gather(*latest.values())  # each waits for the one before it

    async def watch_all() -> None:
        for beat in itertools.count(1):
            await until(beat * period)
            await watch(time.monotonic() - began, tally)

    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        tasks = [asyncio.create_task(send_all()), asyncio.create_task(watch_all())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*tasks, *latest.values()):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return tally


async def _post(session: aiohttp.ClientSession, url: str, model: str, tokens: list[int], number: str) -> str | None:
    """Why there was no answer; None: there was one."""
    body: dict[str, object] = {"model": model, "prompt": tokens, "max_tokens": 1, "temperature": 0}
    conversation = identifier(number)
    if conversation is not None:
        body["vllm_xargs"] = {"conversation_id": conversation}
    try:
        async with session.post(url, json=body) as response:
            text = await response.text()
            return None if response.status == 200 else f"HTTP {response.status}: {text[:200]}"
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
        return f"{type(error).__name__}: {error}"
