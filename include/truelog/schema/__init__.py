"""Schema: the declarations of event types, and the decoder that turns raw records into typed columns."""
