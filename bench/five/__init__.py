"""Five views in Truelog and in other streaming engines: how fresh each view is, and its cost, on the same events."""
