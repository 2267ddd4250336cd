"""Quality: metrics of each event type's log days, and their validation by Great Expectations."""
