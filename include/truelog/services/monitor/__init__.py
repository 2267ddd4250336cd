"""The service that watches the platform, whose process is called `lag`."""
