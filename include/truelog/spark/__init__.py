"""Spark: configures, submits and starts every Spark process."""
