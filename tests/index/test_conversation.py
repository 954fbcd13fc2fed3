"""Conversations with an explicit id: found again, the least recently used forgotten."""

from vllm_hitratio_plugin.index.conversation import NamedConversations


def test_the_same_id_is_the_same_conversation() -> None:
    named = NamedConversations()
    one = named.get("a")
    assert one.turns == 0
    assert named.get("b") is not one
    assert named.get("a") is one


def test_the_least_recently_used_is_forgotten() -> None:
    named = NamedConversations(limit=2)
    a, b = named.get("a"), named.get("b")
    named.get("a")
    named.get("c")
    assert len(named) == 2
    assert named.get("a") is a
    assert named.get("b") is not b
