"""History: the events behind a view's row, and a view's rows at an earlier time, from the archive."""
