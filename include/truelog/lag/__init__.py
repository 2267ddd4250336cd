"""Lag: how far each reader is behind the log, the lag history, and the rules for the lag verdict."""
