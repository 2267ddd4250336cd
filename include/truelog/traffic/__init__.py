"""Traffic for demonstrations and tests: events from a seed."""
