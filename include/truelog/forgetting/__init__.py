"""Forgetting: the steps of an erasure, which bring everything that the platform keeps to a state without a person."""
