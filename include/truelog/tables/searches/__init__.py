"""Searches: the tables of a view of searches. Their kind is that of patterns, with other rules."""
