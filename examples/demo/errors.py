"""What ends the demo early."""


class DemoError(RuntimeError):
    """The demo cannot go on; the message is for its user."""
