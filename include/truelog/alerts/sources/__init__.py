"""The sources of alerts: each finds the problems of one part of the platform."""
