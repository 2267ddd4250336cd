"""Ingest: events in, over HTTP, from access logs, or generated."""
