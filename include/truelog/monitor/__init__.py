"""Monitor: health, reports and metrics of the running platform."""
