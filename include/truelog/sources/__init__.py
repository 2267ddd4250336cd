"""What brings records into the log: one folder for each source."""
