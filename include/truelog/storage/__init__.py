"""Storage: connections to PostgreSQL and S3, the database schema, the audit trail, and API keys."""
