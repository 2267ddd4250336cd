"""Builders of rows in the kernel's own tables, for tests that need a stored state without the work that leads to it.

Only builders know the columns. Where a function of the library writes such a row, tests call that function instead.
"""
