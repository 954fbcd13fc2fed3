"""A package, so that tests and the processes they start import ``tests.support`` by name."""
