"""Archived records: one with its fields, and the newest of a topic."""
