"""Patterns: the tables of a view of patterns, whose rows follow from the events of an entity and from rules."""
