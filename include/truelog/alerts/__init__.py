"""Alerts: what is wrong now, the life of an incident, and who is notified."""
