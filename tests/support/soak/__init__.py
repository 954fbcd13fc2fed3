"""The soak: two real servers under load for half an hour (``make soak``)."""
