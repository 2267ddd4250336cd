"""Settings of single parts of the platform, which `truelog.support.settings` collects."""
