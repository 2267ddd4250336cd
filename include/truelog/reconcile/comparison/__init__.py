"""Comparison: the streamed rows of a view and its rebuild, first by hashes, then row for row."""
