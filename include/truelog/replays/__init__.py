"""Replays: experimental copies of views from the archive, with other code if wanted, beside production."""
