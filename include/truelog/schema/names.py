"""Names that every package shares: the columns that identify a record, and the topic that is the clock of the log."""

COORDINATES = ("topic", "partition", "offset")
TICKS = "ticks"
