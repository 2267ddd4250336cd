"""The service that writes ticks, which are the clock of the log."""
