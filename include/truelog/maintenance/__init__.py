"""Maintenance: removes data that is no longer needed and compacts the archive, every six hours."""
