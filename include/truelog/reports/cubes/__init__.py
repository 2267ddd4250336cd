"""Cubes: views whose rows can be added, and their figures in a time range."""
