"""Schema: the declarations of event types, and the decoder of raw records into typed columns."""
