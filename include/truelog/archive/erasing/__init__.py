"""Reads and rewrites single files of an archive table, for the audit and for erasures."""
