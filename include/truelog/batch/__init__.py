"""Batch: partials by log day, and views rebuilt from the archive at exact positions."""
