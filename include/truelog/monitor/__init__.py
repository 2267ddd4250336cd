"""Monitor: the health, reports and metrics of the running platform, and the service that polls lag and alerts."""
