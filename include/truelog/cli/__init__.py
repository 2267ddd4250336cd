"""The `truelog` command line, with one function for each command in `commands/`."""
