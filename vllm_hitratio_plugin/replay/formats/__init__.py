"""Readers of trace files, one a format."""
