"""Rules: adding and retiring pattern rules, what they have found, and what a rule would have found."""
