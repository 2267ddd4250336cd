"""Alerts: sources that find problems, the life of an incident, and notifications to receivers."""
