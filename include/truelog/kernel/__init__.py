"""Kernel: the merge, which adds a range of the log to a view's table and advances its positions in one transaction."""
