"""The client for applications: sends events to the collector, and reads views from the API. It needs only httpx."""
