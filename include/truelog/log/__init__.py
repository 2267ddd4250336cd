"""The log: positions, topics, ticks, and the clients that send records to Kafka and read them."""
