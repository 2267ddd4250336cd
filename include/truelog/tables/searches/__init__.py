"""Searches: the tables of a view of searches."""
