"""The commands, one file per command, and in `folds/` the states that several commands share."""
