"""Patterns: rules that describe sequences of events, and the search for their matches among the events of one key."""
