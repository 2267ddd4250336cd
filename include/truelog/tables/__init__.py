"""Tables: what a table of a view is, from its columns and fingerprint to its rows, with one folder for each kind."""
