"""Searches the events of many groups together: conditions are judged for all events of a batch at once."""
