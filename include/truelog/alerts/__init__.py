"""Alerts: sources that find problems, the incident life cycle, and notifications to receivers."""
