"""Lag: how far each reader is behind the log, the history of that, and the rules for its verdict."""
