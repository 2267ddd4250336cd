"""Batch: partials by log day, and a view rebuilt from them and the archive at exact positions."""
