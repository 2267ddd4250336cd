"""Reports: the health, the reports and the metrics of the platform, for people and for Prometheus."""
