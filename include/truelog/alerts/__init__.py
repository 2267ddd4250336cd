"""Alerts: the problems that sources find, the life of an incident, and how receivers are notified."""
