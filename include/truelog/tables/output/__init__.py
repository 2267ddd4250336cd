"""Output: what a transaction changes in a view's own table, and the outbox of the views that publish it."""
