"""Fold: the tables of a Group, whose rows are a function of all inputs with the same key, in their order."""
