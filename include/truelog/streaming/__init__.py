"""Streaming: the long-running Spark applications. One writes the archive; the others merge batches into views."""
