"""Reconcile: hash a streamed view and its rebuild at the same positions, explain and repair differing rows, certify."""
