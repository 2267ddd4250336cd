"""Ingest: events from HTTP (the collector), from access logs, or from a generator of test traffic."""
