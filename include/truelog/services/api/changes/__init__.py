"""The changes of published views, pushed to subscribers as they happen."""
