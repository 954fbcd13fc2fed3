"""The mathematics of the multi-turn conversation model: pure, no input or output, no clock."""
