"""The mathematics: reuse times, displacement, hit-ratio curves. Pure: no input or output, no clock, nothing of ours."""
