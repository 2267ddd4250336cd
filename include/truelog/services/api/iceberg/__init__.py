"""The archive as a catalog of Iceberg's REST protocol, which only reads."""
