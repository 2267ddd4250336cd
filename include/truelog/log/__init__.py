"""The log: positions, topics, ticks, and how records are sent to Kafka and read from it."""
