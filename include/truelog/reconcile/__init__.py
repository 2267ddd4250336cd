"""Reconcile: compare a streamed view with its rebuild, explain and repair differences, certify equality."""
