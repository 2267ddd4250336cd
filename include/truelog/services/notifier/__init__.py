"""The service that notifies channels of matches and hits."""
