"""Archive: stores every record of every topic in Iceberg tables, with commits, log days, readers and an audit."""
