"""Serving: what readers of a view get, from the stream or from the batch layer."""
