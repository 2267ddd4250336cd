"""The subcommands for rules: patterns, stored searches and notifications."""
