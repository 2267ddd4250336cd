"""Applications as processes: started, stopped, diagnosed."""
