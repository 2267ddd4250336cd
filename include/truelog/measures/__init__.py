"""Measures: how one column of a view is aggregated, in Spark and in PostgreSQL."""
