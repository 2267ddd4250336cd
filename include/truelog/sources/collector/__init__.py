"""The collector's way from a body to records: read the body, parse its events, classify them, send them."""
