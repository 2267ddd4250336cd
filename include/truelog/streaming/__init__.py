"""Streaming: the long-running applications that keep the archive and the views."""
