"""Sends a timetable's prompts to a server, each at its time whatever the server does (open loop)."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp

from examples.demo.workload import Timetable, identifier
from vllm_hitratio_plugin.replay.trace import Prompt

REQUEST_TIMEOUT = 120.0
KEEP_ALIVE = 2.0
"""Seconds that a connection may idle here: less than the 5 after which vLLM closes it, perhaps as it is used again."""

LATE = 0.1
"""Seconds after its time from which on a prompt counts as sent late."""


@dataclass(frozen=True)
class Sent:
    """One prompt that was sent; times in seconds from the start of the load."""

    prompt: Prompt
    sent: float
    answered: float
    error: str | None
    """Why there was no answer."""

    waited: bool
    """Its conversation's previous answer was still to come at its time: sent as soon as that came (the paper's 80)."""


@dataclass
class Tally:
    """What has been sent so far."""

    planned: int
    done: list[Sent] = field(default_factory=list)

    @property
    def failures(self) -> list[Sent]:
        return [each for each in self.done if each.error is not None]

    @property
    def late(self) -> int:
        """Prompts sent after their time for another reason than the conversation's previous answer."""
        return sum(each.sent - each.prompt.time > LATE and not each.waited for each in self.done)

    @property
    def latencies(self) -> list[float]:
        """Seconds from sending to the whole answer, sorted."""
        return sorted(each.answered - each.sent for each in self.done if each.error is None)

    def within(self, begin: float, end: float) -> list[Sent]:
        """Those sent in begin ≤ time < end and answered."""
        return [each for each in self.done if begin <= each.sent < end and each.error is None]


Watch = Callable[[float, Tally], Awaitable[None]]
"""Called again and again during the load, with the seconds since its start."""


async def drive(timetable: Timetable, url: str, model: str, watch: Watch, period: float) -> Tally:
    """Send everything, wait for all answers, and return what happened.

    `watch` is called every `period` seconds; what it raises ends the load and is raised.
    """
    tally = Tally(len(timetable.trace.prompts))
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        driver = _Driver(timetable, f"{url}/v1/completions", model, session, tally)
        tasks = [asyncio.create_task(driver.send_all()), asyncio.create_task(driver.watch(watch, period))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return tally


class _Driver:
    def __init__(
        self, timetable: Timetable, url: str, model: str, session: aiohttp.ClientSession, tally: Tally
    ) -> None:
        self.timetable, self.url, self.model, self.session, self.tally = timetable, url, model, session, tally
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
        tasks = []
        try:
            for prompt in self.timetable.trace.prompts:
                await asyncio.sleep(max(0.0, prompt.time - self.now()))
                number = str(prompt.conversation)
                task = asyncio.create_task(self.send(prompt, number, self.previous.get(number)))
                self.previous[number] = task
                tasks.append(task)
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def send(self, prompt: Prompt, number: str, previous: "asyncio.Task[None] | None") -> None:
        waited = previous is not None and not previous.done()
        if previous is not None and waited:
            await previous
        sent = self.now()
        error = await self.post(prompt, number)
        self.tally.done.append(Sent(prompt, sent, self.now(), error, waited))

    async def post(self, prompt: Prompt, number: str) -> str | None:
        if number not in self.tokens:
            self.tokens[number] = self.timetable.tokens(number)
        body: dict[str, object] = {
            "model": self.model,
            "prompt": self.tokens[number][: prompt.tokens],
            "max_tokens": 1,
            "temperature": 0,
        }
        conversation = identifier(number)
        if conversation is not None:
            body["vllm_xargs"] = {"conversation_id": conversation}
        try:
            async with self.session.post(self.url, json=body) as response:
                text = await response.text()
                return None if response.status == 200 else f"HTTP {response.status}: {text[:200]}"
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            return f"{type(error).__name__}: {error}"
