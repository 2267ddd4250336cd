"""The command line, `truelog`."""
