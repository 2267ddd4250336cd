"""Text: the words of a text, the same in searches, events, views and PostgreSQL; and edits of one text."""
