"""The states on which commands decide, if several commands share them."""
