"""The recorder on vLLM's own KV cache manager: one record an admission, and a cost that no prompt's length changes."""

import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.real_manager import BLOCK_SIZE, admit, make_manager, make_request, serve
from vllm_hitratio_plugin.engine import recorder as recorders
from vllm_hitratio_plugin.engine.recorder import Admission, Progress, Record, Recorder, Release, Reset

pytestmark = pytest.mark.vllm


class Watched:
    def __init__(self, capacity: int) -> None:
        self.manager = make_manager(capacity)
        self.recorder = Recorder(self.manager)

    def take(self) -> list[Record]:
        records = self.recorder.records
        self.recorder.queue.clear()
        return records

    def kinds(self) -> list[tuple[Any, ...]]:
        """Of each record its kind, the request's id, and what follows that."""
        return [
            (type(record),)
            if isinstance(record, Reset)
            else (type(record), record.request.request_id, *record[record.index(record.request) + 1 :])
            for record in self.take()
        ]


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched(20)
    yield made
    assert made.recorder.error is None
    made.recorder.close()


def test_one_record_an_admission_and_one_a_release(watched: Watched) -> None:
    manager = watched.manager
    before = time.monotonic()
    assert serve(manager, make_request("one", "abcd")) == 0
    assert serve(manager, make_request("two", "abcdef")) == 4 * BLOCK_SIZE
    times = [record.time for record in watched.recorder.records]
    assert before <= times[0]
    assert times == sorted(times)
    assert watched.kinds() == [
        (Admission, "one", 0, 0, 65, 20, 0, 65),
        (Release, "one", 65, 15),
        (Admission, "two", 64, 0, 97, 20, 0, 97),
        (Release, "two", 97, 13),
    ]


def test_free_blocks_are_those_before_the_admission(watched: Watched) -> None:
    admit(watched.manager, make_request("one", "abcd"))
    admit(watched.manager, make_request("two", "abcdef"))
    admit(watched.manager, make_request("three", "xyz"))
    assert [record.free_blocks for record in watched.take()] == [20, 15, 12]


def test_lookups_that_do_not_fit_are_no_records(watched: Watched) -> None:
    """Case 5: looked up again at every step until it fits."""
    manager = watched.manager
    first = make_request("first", "abcdefghijklmnop")
    admit(manager, first)
    waiting = make_request("waiting", "abcdefgh" + "ABCDEFGH")
    for _ in range(7):
        assert admit(manager, waiting) is None
    manager.free(first)
    assert admit(manager, waiting) == 8 * BLOCK_SIZE
    assert watched.kinds() == [
        (Admission, "first", 0, 0, 257, 20, 0, 257),
        (Release, "first", 257, 3),
        (Admission, "waiting", 128, 0, 257, 20, 0, 257),
    ]


def test_decoding_leaves_no_records(watched: Watched) -> None:
    manager = watched.manager
    request = make_request("one", "abcd", answer=40)
    admit(manager, request)
    for _ in range(20):
        assert manager.allocate_slots(request, 1) is not None
    assert manager.allocate_slots(request, 1, num_lookahead_tokens=2) is not None
    assert [kind for kind, *_ in watched.kinds()] == [Admission]


def test_a_chunked_prefill_is_one_admission_and_its_progress(watched: Watched) -> None:
    manager = watched.manager
    request = make_request("one", "abcdefgh")
    blocks, hit, *_ = manager.get_computed_blocks(request)
    manager.allocate_slots(request, 32, num_new_computed_tokens=hit, new_computed_blocks=blocks)
    request.num_computed_tokens = 32
    manager.allocate_slots(request, 32)
    request.num_computed_tokens = 64
    manager.allocate_slots(request, request.num_tokens - 64)
    assert watched.kinds() == [
        (Admission, "one", 0, 0, 32, 20, 0, 129),
        (Progress, "one", 64, 18),
        (Progress, "one", 129, 16),
    ]


def test_a_preempted_request_is_marked_when_it_comes_back(watched: Watched) -> None:
    manager = watched.manager
    request = make_request("one", "abcd")
    admit(manager, request)
    manager.free(request)
    request.num_computed_tokens = 0
    request.num_preemptions += 1
    admit(manager, request)
    assert watched.kinds() == [
        (Admission, "one", 0, 0, 65, 20, 0, 65),
        (Release, "one", 65, 15),
        (Admission, "one", 64, 0, 65, 20, 1, 65),
    ]


def test_the_second_call_after_a_load_from_outside_is_progress(watched: Watched) -> None:
    """Loading holds the blocks (num_computed_tokens is set); the call after it carries the lookup's keywords again."""
    manager = watched.manager
    request = make_request("one", "abcdef")
    assert admit(manager, request, external=4 * BLOCK_SIZE) == 0
    request.num_computed_tokens = 4 * BLOCK_SIZE
    empty = manager.empty_kv_cache_blocks
    assert manager.allocate_slots(request, 33, num_new_computed_tokens=0, new_computed_blocks=empty) is not None
    assert watched.kinds() == [(Admission, "one", 0, 64, 0, 20, 0, 97), (Progress, "one", 97, 16)]


def test_the_positional_form_of_vllm_ascend(watched: Watched) -> None:
    serve(watched.manager, make_request("one", "abcd"))
    watched.take()
    assert admit(watched.manager, make_request("two", "abcdef"), positional=True) == 64
    assert watched.kinds() == [(Admission, "two", 64, 0, 97, 20, 0, 97)]


def test_a_reset_is_recorded_if_it_happened(watched: Watched) -> None:
    manager = watched.manager
    request = make_request("one", "abcd")
    admit(manager, request)
    assert manager.reset_prefix_cache() is False
    manager.free(request)
    assert manager.reset_prefix_cache() is True
    assert [kind for kind, *_ in watched.kinds()] == [Admission, Release, Reset]


def test_frees_that_are_put_off_are_releases(watched: Watched) -> None:
    manager = watched.manager
    request = make_request("one", "abcd")
    admit(manager, request)
    blocks = manager.pop_blocks_for_free(request)
    manager.block_pool.free_blocks(reversed(blocks))
    assert [kind for kind, *_ in watched.kinds()] == [Admission, Release]


def test_the_queue_is_bounded_and_says_when_it_overflowed(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "QUEUE_LIMIT", 10)
    small = Watched(20)
    for number in range(4):
        serve(small.manager, make_request(str(number), "abcd"))
    assert not small.recorder.full
    serve(small.manager, make_request("last", "abcd"))
    assert small.recorder.full
    serve(small.manager, make_request("over", "abcd"))
    assert len(small.take()) == 10


def test_closing_gives_the_manager_its_own_methods_back(watched: Watched) -> None:
    other = Watched(20)
    assert "allocate_slots" in vars(other.manager)
    other.recorder.close()
    assert not {"allocate_slots", "free", "pop_blocks_for_free", "reset_prefix_cache"} & set(vars(other.manager))
    serve(other.manager, make_request("one", "abcd"))
    assert other.take() == []


def test_somebody_elses_wrapper_on_top_stays() -> None:
    watched = Watched(20)
    ours = watched.manager.allocate_slots
    calls = []

    def theirs(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return ours(*args, **kwargs)

    watched.manager.allocate_slots = theirs
    watched.recorder.close()
    assert serve(watched.manager, make_request("one", "abcd")) == 0
    assert calls == [1]


@pytest.mark.parametrize("broken_after", [0, 1, 5])
def test_a_failure_of_ours_stops_the_recording_and_not_the_manager(
    broken_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        calls = 0

        @classmethod
        def monotonic(cls) -> float:
            cls.calls += 1
            if cls.calls > broken_after:
                raise RuntimeError("on purpose")
            return 0.0

    monkeypatch.setattr(recorders, "time", Clock)
    watched = Watched(20)
    hits = [serve(watched.manager, make_request(str(number), "abcd")) for number in range(6)]
    assert hits == [0, 64, 64, 64, 64, 64]
    assert isinstance(watched.recorder.error, RuntimeError)
    assert Clock.calls == broken_after + 1
    assert "allocate_slots" not in vars(watched.manager)


def test_only_this_manager_is_watched(watched: Watched) -> None:
    other = make_manager(20)
    serve(other, make_request("one", "abcd"))
    assert watched.take() == []


def test_the_cost_does_not_grow_with_the_prompt() -> None:
    """What the wrapper adds to a call that does nothing, for prompts of 2 and of 2,000 blocks."""

    def added(path_blocks: int) -> float:
        manager = make_manager(20)
        request = make_request("one", "ab")
        request.block_hashes = request.block_hashes * (path_blocks // 2)
        blocks = manager.empty_kv_cache_blocks

        def nothing(*args: Any, **kwargs: Any) -> Any:
            return blocks

        manager.allocate_slots = manager.free = nothing
        recorder = Recorder(manager)
        spans = []
        for _ in range(200):
            began = time.perf_counter()
            for _ in range(20):
                manager.allocate_slots(request, 1, num_new_computed_tokens=0, new_computed_blocks=blocks)
                manager.free(request)
            spans.append(time.perf_counter() - began)
        assert len(recorder.queue) == 200 * 20 * 2
        return statistics.median(spans)

    short, long = added(2), added(2000)
    assert long < 1.5 * short
