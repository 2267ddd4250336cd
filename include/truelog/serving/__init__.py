"""Serving: whether readers get a view from its stream or, if that is late or wrong, from the batch layer."""
