"""The service that answers questions of applications about views."""
