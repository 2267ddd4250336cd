"""The commands of `truelog`, grouped by subject: a function is a command, and its name is what people type."""
