"""Lag: how far each reader is behind the log, its history, and the verdict on it."""
