"""Content that several namespaces cache, and how much of it is remembered."""

from vllm_hitratio_plugin.index.namespaces import Namespaces


def test_leading_blocks_of_another_namespace() -> None:
    namespaces = Namespaces()
    assert namespaces.duplicated(None, [1, 2, 3]) == 0
    assert namespaces.duplicated("salt", [1, 2, 4]) == 2
    assert namespaces.duplicated("salt", [1, 2, 4]) == 2  # of the first one; its own copy is none
    assert namespaces.duplicated("adapter", [5]) == 0
    assert namespaces.duplicated("adapter", []) == 0


def test_what_is_remembered_is_bounded_in_blocks() -> None:
    namespaces = Namespaces(limit_blocks=100)
    for prompt in range(50):
        namespaces.duplicated("salt", [(prompt, block) for block in range(10)])
        assert namespaces.blocks <= 100
    # The oldest is forgotten, the youngest is not.
    assert namespaces.duplicated(None, [(0, block) for block in range(10)]) == 0
    assert namespaces.duplicated(None, [(49, block) for block in range(10)]) == 10


def test_a_longer_copy_takes_the_place_of_the_shorter_one() -> None:
    namespaces = Namespaces(limit_blocks=100)
    namespaces.duplicated("salt", [1, 2])
    namespaces.duplicated("salt", [1, 2, 3])
    assert namespaces.blocks == 3


def test_a_prompt_beyond_the_bound_is_not_kept() -> None:
    namespaces = Namespaces(limit_blocks=100)
    namespaces.duplicated("salt", list(range(1000)))
    assert namespaces.blocks == 0
