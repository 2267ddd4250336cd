"""The service that publishes the changed rows of views to their output topics."""
