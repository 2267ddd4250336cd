"""Applications as processes: how they start and stop, whether they are alive, and the positions that they reached."""
