"""Notifications of what events say: matches of pattern rules and hits of stored searches, sent to channels."""
