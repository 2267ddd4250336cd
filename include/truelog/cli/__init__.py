"""The command line, `truelog`: one function per command in `commands/`."""
