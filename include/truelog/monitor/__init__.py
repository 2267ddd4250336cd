"""Monitor: the health, reports and metrics of the platform, and the service that polls lag and checks for alerts."""
