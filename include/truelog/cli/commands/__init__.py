"""The command line's words, by subject: each function is a command, its name the word that people type."""
