"""The rules that come with the platform, one file per rule, and what rules may name."""
