"""Limits: of the requests of addresses, of the dead letters of keys, and of the transactions of analysts."""
