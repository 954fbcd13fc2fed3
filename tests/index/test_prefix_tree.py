"""The prefix tree: hand-made histories, and the same answers as a reference that keeps every block by itself."""

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.block_reference import BlockReference, chain
from vllm_hitratio_plugin.index.conversation import Conversation
from vllm_hitratio_plugin.index.match import Match
from vllm_hitratio_plugin.index.prefix_tree import BYTES_PER_BLOCK, BYTES_PER_NODE, PrefixTree

LARGE = 10**6


def admit(tree: PrefixTree, path: str, time: float, full: int | None = None) -> Match:
    count = len(path) if full is None else full
    match = tree.look_up(chain(path), count, time)
    match.node = tree.hold(match.node, chain(path), count)
    return match


def serve(tree: PrefixTree, path: str, time: float) -> Match:
    match = admit(tree, path, time)
    tree.release(match.node, time)
    return match


def runs(match: Match) -> list[tuple[int, float]]:
    return list(zip(match.lengths, match.reuse_times, strict=True))


def test_a_first_prompt_is_all_new() -> None:
    tree = PrefixTree(LARGE)
    match = serve(tree, "abcd", 1)
    assert (match.known, match.lost, match.forked, runs(match)) == (0, 0, False, [])
    assert (tree.blocks, tree.nodes) == (4, 1)


def test_a_growing_conversation_stays_one_node() -> None:
    tree = PrefixTree(LARGE)
    for turn, size in enumerate((2, 5, 9)):
        match = serve(tree, "abcdefghi"[:size], 10.0 * turn)
    assert runs(match) == [(5, 10.0)]
    assert (tree.blocks, tree.nodes) == (9, 1)
    assert not match.forked


def test_a_fork_splits_the_run_and_ages_apart() -> None:
    tree = PrefixTree(LARGE)
    serve(tree, "abcdef", 0)
    match = serve(tree, "abcX", 4)
    assert match.forked
    assert runs(match) == [(3, 4.0)]
    assert (tree.blocks, tree.nodes) == (7, 3)
    again = serve(tree, "abcdef", 10)
    assert runs(again) == [(3, 6.0), (3, 10.0)]
    assert not again.forked


def test_a_prompt_that_ends_inside_a_run_is_no_fork() -> None:
    tree = PrefixTree(LARGE)
    serve(tree, "abcdef", 0)
    match = serve(tree, "abcd", 4)
    assert (match.known, match.forked) == (4, False)
    assert runs(serve(tree, "abcdef", 10)) == [(4, 6.0), (2, 10.0)]


def test_blocks_beyond_the_prompts_full_ones_are_not_looked_at() -> None:
    tree = PrefixTree(LARGE)
    match = admit(tree, "abcdef", 0, full=4)
    assert tree.blocks == 4
    tree.release(match.node, 0)
    assert serve(tree, "abcdef", 1).known == 4


def test_a_prompt_without_a_full_block() -> None:
    tree = PrefixTree(LARGE)
    match = admit(tree, "", 0)
    assert match.node is None
    tree.release(match.node, 1)
    assert tree.blocks == 0


def test_in_use_blocks_have_gap_zero() -> None:
    tree = PrefixTree(LARGE)
    first = admit(tree, "abcd", 0)
    second = admit(tree, "abcdef", 7)
    assert runs(second) == [(4, 0.0)]
    assert tree.in_use_blocks == 6
    tree.release(first.node, 8)
    assert runs(admit(tree, "ab", 9)) == [(2, 0.0)]
    tree.release(second.node, 20)
    assert tree.in_use_blocks == 2
    assert runs(admit(tree, "abcdef", 21)) == [(2, 0.0), (4, 1.0)]


def test_a_gap_is_never_zero_without_a_holder() -> None:
    tree = PrefixTree(LARGE)
    serve(tree, "ab", 5)
    (gap,) = admit(tree, "ab", 5).reuse_times
    assert gap > 0


def test_the_gap_runs_from_the_release() -> None:
    tree = PrefixTree(LARGE)
    match = admit(tree, "ab", 0)
    tree.release(match.node, 30)
    assert runs(admit(tree, "abc", 45)) == [(2, 15.0)]


def test_the_answers_blocks_join_at_the_release() -> None:
    tree = PrefixTree(LARGE)
    match = admit(tree, "abc", 0)
    node = tree.write(match.node, chain("abcde"), 5, "one", LARGE)
    tree.release(node, 2)
    assert (tree.blocks, tree.in_use_blocks) == (5, 0)
    assert runs(serve(tree, "abcdef", 9)) == [(5, 7.0)]


def test_an_answer_that_another_request_cached_already() -> None:
    tree = PrefixTree(LARGE)
    first, second = admit(tree, "abc", 0), admit(tree, "abc", 1)
    tree.release(tree.write(first.node, chain("abcde"), 5, "first", LARGE), 2, writer="first")
    node = tree.write(second.node, chain("abcdX"), 5, "second", LARGE)
    assert (tree.blocks, tree.in_use_blocks) == (6, 5)
    tree.release(node, 6, writer="second")
    assert runs(serve(tree, "abcde", 9)) == [(4, 3.0), (1, 7.0)]


def test_a_copy_displaces_others_and_is_hit_when_the_first_is_gone() -> None:
    """Two requests compute "abcd" at once; 4 more blocks follow. Of 9 blocks, the first copy of "d" is gone."""
    tree = PrefixTree(LARGE)
    first = admit(tree, "abcd", 0)
    second = tree.write(None, chain("abcd"), 4, "second", LARGE)
    assert (tree.blocks, tree.in_use_blocks) == (4, 8)
    tree.release(first.node, 1, writer="first")
    tree.release(second, 2, writer="second")
    serve(tree, "wxyz", 3)
    match = tree.look_up(chain("abcd"), 4, 9)
    assert (runs(match), match.distances, match.copied) == ([(4, 7.0)], [4], True)
    node = tree.hit(chain("abcd"), 4, room=11)  # what is left of the first copy: "abc"
    tree.release(node, 10, writer="third")
    assert tree.look_up(chain("abcd"), 4, 10).distances == [0]
    serve(tree, "v", 11)
    # From the bottom: the second copy of "abc", "zyxw", the four that were hit, "v".
    assert [copy.place >= 0 for copy in tree._heads["a",].copies] == [True]
    assert tree._stack.above(tree._heads["a",].copies[0].place, 3) == 9


def test_a_reset_loses_what_was_released_before() -> None:
    tree = PrefixTree(LARGE)
    serve(tree, "abcd", 0)
    tree.reset()
    match = serve(tree, "abcdef", 6)
    assert (match.known, match.lost) == (0, 4)
    assert runs(serve(tree, "abcdef", 8)) == [(6, 2.0)]


def test_what_is_held_through_a_reset_is_kept() -> None:
    tree = PrefixTree(LARGE)
    serve(tree, "abcd", 0)
    admit(tree, "ab", 1)
    tree.reset()
    match = admit(tree, "abcd", 6)
    assert (runs(match), match.lost) == ([(2, 0.0)], 2)


def test_the_least_recently_released_is_forgotten_suffix_first() -> None:
    tree = PrefixTree(8)
    serve(tree, "abcd", 0)
    serve(tree, "abXY", 1)
    serve(tree, "pqrs", 2)
    assert tree.blocks == 8  # 2 of "cd" went, their prefix did not
    assert admit(tree, "abcd", 3).known == 2
    assert admit(tree, "abXY", 3).known == 4


def test_in_use_blocks_are_never_forgotten() -> None:
    tree = PrefixTree(4)
    held = admit(tree, "abcdef", 0)
    for number in range(9):
        serve(tree, f"{number}xyz", 1 + number)
    assert admit(tree, "abcdef", 20).known == 6
    assert tree.blocks - tree.in_use_blocks <= 4
    assert held.node is not None


def test_memory_is_stated() -> None:
    tree = PrefixTree(LARGE)
    serve(tree, "abcd", 0)
    serve(tree, "xy", 0)
    assert tree.bytes == 6 * BYTES_PER_BLOCK + 2 * BYTES_PER_NODE


def test_a_conversation_is_found_by_the_prefix_of_its_last_prompt() -> None:
    tree = PrefixTree(LARGE)
    conversation = Conversation()
    conversation.blocks = 3
    node = serve(tree, "abc", 0).node
    assert node is not None
    node.conversation = conversation
    assert serve(tree, "abcde", 1).conversation is conversation
    assert serve(tree, "abX", 2).conversation is None
    assert serve(tree, "ab", 3).conversation is None
    assert serve(tree, "abcYZ", 4).conversation is conversation


def test_cost_follows_runs_not_blocks() -> None:
    """A prompt of 10,000 known blocks is settled by its first and last id, and few in between where it forks."""

    class Counted:
        comparisons = 0

        def __init__(self, name: int) -> None:
            self.name = name

        def __hash__(self) -> int:
            return hash(self.name)

        def __eq__(self, other: object) -> bool:
            Counted.comparisons += 1
            return isinstance(other, Counted) and self.name == other.name

    tree = PrefixTree(LARGE)
    tree.release(tree.hold(None, [Counted(i) for i in range(10_000)], 10_000), 0)
    Counted.comparisons = 0
    assert tree.look_up([Counted(i) for i in range(10_000)], 10_000, 1).known == 10_000
    assert Counted.comparisons <= 3
    Counted.comparisons = 0
    forked = [Counted(i if i < 6_000 else -i) for i in range(10_000)]
    assert tree.look_up(forked, 10_000, 1).known == 6_000
    assert Counted.comparisons <= 25


paths = st.text("ab", min_size=0, max_size=7)
steps = st.one_of(
    st.tuples(st.just("admit"), paths, st.integers(0, 99)),
    st.tuples(st.just("release"), st.just(""), st.integers(0, 99)),
    st.tuples(st.just("answer"), st.text("ab", min_size=1, max_size=4), st.integers(0, 99)),
    st.tuples(st.just("skip"), paths, st.integers(0, 99)),
    st.tuples(st.just("reset"), st.just(""), st.just(0)),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(steps, st.sampled_from([0.0, 0.5, 3.0])), max_size=40))
def test_the_same_as_the_reference(trace: list[tuple[tuple[str, str, int], float]]) -> None:
    tree, reference = PrefixTree(LARGE), BlockReference()
    held = []
    time = 0.0
    for user, ((what, text, index), pause) in enumerate(trace):
        time += pause
        match, seen = tree.look_up(chain(text), len(text), time), reference.look_up(chain(text), time)
        assert match.known == len(seen.reuse_times)
        assert match.lost == seen.lost
        assert [gap for length, gap in runs(match) for _ in range(length)] == seen.reuse_times
        assert [
            first if first < 0 else first + place
            for length, first in zip(match.lengths, match.distances, strict=True)
            for place in range(length)
        ] == seen.distances
        if what == "admit":
            if match.copied:
                node = tree.hit(chain(text), match.known + match.lost, LARGE)
                node = tree.write(node, chain(text), len(text), user, LARGE)
            else:
                node = tree.hold(match.node, chain(text), len(text))
            reference.hold(chain(text), user)
            held.append((text, node, user))
        elif what == "skip":
            held.append((text, tree.write(None, chain(text), len(text), user, LARGE), user))
            reference.write(chain(text), user)
        elif what == "reset":
            tree.reset()
            reference.reset()
        elif held:
            text_held, node, holder = held.pop(index % len(held))
            if what == "answer":
                whole = text_held + text
                node = tree.write(node, chain(whole), len(whole), holder, LARGE)
                reference.write(chain(whole)[len(text_held) :], holder)
                text_held = whole
            tree.release(node, time, writer=holder)
            reference.release(chain(text_held), time, holder)
        assert tree.blocks == len(reference.blocks)
        assert tree.in_use_blocks == reference.in_use


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.text("abc", max_size=9), st.integers(0, 5)), max_size=60), st.integers(0, 25))
def test_the_bound_is_kept_and_what_is_known_is_a_prefix(trace: list[tuple[str, int]], limit: int) -> None:
    tree, everything = PrefixTree(limit), PrefixTree(LARGE)
    held = []
    clock = count()
    for path, keep in trace:
        now = float(next(clock))
        match, unbounded = admit(tree, path, now), admit(everything, path, now)
        assert match.known <= unbounded.known
        # Nothing that is remembered looks younger or older than it is.
        shared = max(len(match.reuse_times) - 1, 0)
        assert match.reuse_times[:shared] == unbounded.reuse_times[:shared]
        assert match.lengths[:shared] == unbounded.lengths[:shared]
        held.append((match.node, unbounded.node))
        while len(held) > keep:
            node, other = held.pop(0)
            tree.release(node, now)
            everything.release(other, now)
        assert tree.blocks - tree.in_use_blocks <= limit
        assert tree.nodes <= max(tree.blocks, 1)


def test_depths_stay_right_over_a_hundred_thousand_turns_of_few_conversations() -> None:
    """Places of the LRU stack are dropped again as they empty."""
    tree = PrefixTree(1000)
    for turn in range(100_000):
        serve(tree, "abcdefgh"[turn % 8] + "x", float(turn))
    assert admit(tree, "ax", 1e9).distances == [14]
    assert tree._stack.size < 100_000
