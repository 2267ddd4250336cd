"""Batch: partials for each log day, and views rebuilt at exact positions from the partials and the archive."""
