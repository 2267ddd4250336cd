"""What readers see of the tables of views."""
