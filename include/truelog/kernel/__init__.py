"""Kernel: merges a range of the log into a view's table and advances the view's positions in the same transaction."""
