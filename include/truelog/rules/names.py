"""The views in which people look for what rules and stored searches have found."""

MATCHES = "matches"
HITS = "search_hits"
