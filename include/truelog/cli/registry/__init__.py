"""The commands of a schema registry."""
