"""Rows: which a client may ask for, the statement that reads them, and what an answer says about them."""
