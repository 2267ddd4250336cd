"""Added: the tables to which events are added, whose measures add up."""
