"""Applications as processes: how they start and stop, whether they are alive, and which positions they have reached."""
