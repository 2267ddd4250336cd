"""Maintenance: the daily removal of data that is no longer needed, and the compaction of the archive."""
