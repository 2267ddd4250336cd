"""Storage: connections to PostgreSQL and S3, the schema in SQL, the audit trail, API keys."""
