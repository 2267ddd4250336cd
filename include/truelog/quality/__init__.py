"""Quality: metrics of each log day of an event type, and what Great Expectations finds in them."""
