"""What a user did wrong."""

from collections.abc import Iterator
from contextlib import contextmanager


class UsageError(Exception):
    """Bad input; the message is one sentence, printed to stderr with exit code 2."""


@contextmanager
def usage(*kinds: type[Exception]) -> Iterator[None]:
    """Turn ``kinds`` of errors (``ValueError`` if none is named) of code that checks input into a ``UsageError``."""
    expected = kinds or (ValueError,)
    try:
        yield
    except expected as error:
        raise UsageError(str(error)) from error
