"""Capture: the tables of another PostgreSQL database as event types, through Debezium on Kafka Connect."""
