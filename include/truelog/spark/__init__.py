"""Spark: how every Spark process is configured, submitted and started."""
