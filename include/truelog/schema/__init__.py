"""Schema: what an event type declares, and how a record's raw bytes become typed columns."""
