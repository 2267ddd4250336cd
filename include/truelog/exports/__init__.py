"""Exports: reads the rows of a view, as pages of text, JSON, CSV or Parquet."""
