"""Sums over time slots: batches of requests, outcomes of their blocks, the sliding window."""
