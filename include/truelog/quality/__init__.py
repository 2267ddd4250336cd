"""Quality: metrics of each event type by log day, and their validation by Great Expectations."""
