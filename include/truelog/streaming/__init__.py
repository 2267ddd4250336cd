"""Streaming: the long-running Spark applications; one writes the archive, the others merge batches into views."""
