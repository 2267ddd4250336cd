"""What stored searches may name."""
