"""Relay: publishes the numbered rows of a PostgreSQL table to Kafka, each exactly once, in the order of the numbers."""
