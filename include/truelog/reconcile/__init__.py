"""Reconcile: compare a streamed view with its rebuild, explain and repair differing rows, and certify equal views."""
