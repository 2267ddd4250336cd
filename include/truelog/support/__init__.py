"""Support: errors, settings, durations, timestamps, waiting, HTTP. Independent of the rest of the platform."""
