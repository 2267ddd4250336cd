"""Searches: the language of stored searches, and which of many searches a text fits."""
