"""How the rows of a batch get into the staging tables."""
