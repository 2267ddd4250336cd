"""Reports which topics, archive tables and views each job reads and writes, as events of OpenLineage."""
