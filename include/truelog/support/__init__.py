"""Support: errors, settings, durations, timestamps, waiting, HTTP. Knows nothing about the platform."""
