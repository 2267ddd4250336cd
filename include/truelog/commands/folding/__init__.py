"""Folding: keeps the states of keys, on which commands are decided, equal to what the log says."""
