"""Batch: partials by log day, and a view rebuilt from the archive at exact positions."""
