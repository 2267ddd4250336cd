"""The `truelog` commands, grouped by subject. Each function is a command, and its name is what people type."""
