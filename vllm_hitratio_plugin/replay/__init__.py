"""Traces, generators, block pools in virtual time, experiments."""
