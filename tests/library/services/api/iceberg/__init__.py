"""Tests of the archive by Iceberg's REST protocol."""
