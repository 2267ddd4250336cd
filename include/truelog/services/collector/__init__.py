"""The service that receives events over HTTP."""
