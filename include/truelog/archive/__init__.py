"""Archive: every record of every topic in Iceberg tables; its commit, log days, readers and audit."""
