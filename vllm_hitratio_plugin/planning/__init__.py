"""What-ifs: the measured traffic under a change, and the capacity it then needs."""
