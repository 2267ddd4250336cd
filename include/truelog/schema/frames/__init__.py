"""Frames of a schema registry: a zero byte, the number of a schema, and a value in Avro or JSON."""
