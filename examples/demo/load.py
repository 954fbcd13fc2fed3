"""Sends a timetable's prompts to a server, each at its time whatever the server does (open loop)."""

import asyncio
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
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        driver = _Driver(timetable, f"{url}/v1/completions", model, session)
        tasks = [asyncio.create_task(driver.send_all()), asyncio.create_task(driver.watch(watch, period))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*tasks, *driver.previous.values()):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return driver.tally


class _Driver:
    def __init__(self, timetable: Timetable, url: str, model: str, session: aiohttp.ClientSession) -> None:
        self.timetable, self.url, self.model, self.session = timetable, url, model, session
        self.tally = Tally(len(timetable.trace.prompts))
        self.began = time.monotonic()
        self.tokens: dict[str, list[int]] = {}
        self.previous: dict[str, asyncio.Task[None]] = {}

    def now(self) -> float:
        return time.monotonic() - self.began

    async def watch(self, watch: Watch, period: float) -> None:
        beats = 0
        while True:
            beats += 1
            await asyncio.sleep(max(0.0, beats * period - self.now()))
            await watch(self.now(), self.tally)

    async def send_all(self) -> None:
        for prompt in self.timetable.trace.prompts:
            await asyncio.sleep(max(0.0, prompt.time - self.now()))
            number = str(prompt.conversation)
            self.previous[number] = asyncio.create_task(self.send(prompt, number, self.previous.get(number)))
        await asyncio.gather(*self.previous.values())  # each waits for the one before it

    async def send(self, prompt: Prompt, number: str, previous: "asyncio.Task[None] | None") -> None:
        waits = previous is not None and not previous.done()
        if previous is not None:
            await previous
        sent = self.now()
        error = await self.post(prompt, number)
        self.tally.done.append(Sent(sent, self.now() - sent, sent - prompt.time > LATE and not waits, error))

    async def post(self, prompt: Prompt, number: str) -> str | None:
        """Why there was no answer; None: there was one."""
        if number not in self.tokens:
            self.tokens[number] = self.timetable.tokens(number)
        tokens, conversation = self.tokens[number][: prompt.tokens], identifier(number)
        body: dict[str, object] = {"model": self.model, "prompt": tokens, "max_tokens": 1, "temperature": 0}
        if conversation is not None:
            body["vllm_xargs"] = {"conversation_id": conversation}
        try:
            async with self.session.post(self.url, json=body) as response:
                text = await response.text()
                return None if response.status == 200 else f"HTTP {response.status}: {text[:200]}"
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            return f"{type(error).__name__}: {error}"
