"""Tracing: the events behind a row, and what each of them adds to it."""
