"""The schema registry of producers: its schemas are kept, and the schemas of the event types are published there."""
