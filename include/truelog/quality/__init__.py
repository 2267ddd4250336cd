"""Quality: measures each event type by log day and validates the metrics with Great Expectations."""
