"""The `truelog` command line. `main.py` lists its commands, whose functions are in `commands/`, `rules/` and here."""
