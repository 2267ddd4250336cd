"""Serving: whether readers get a view from its stream or, if the stream is late or wrong, from the batch layer."""
