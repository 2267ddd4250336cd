"""Names that every package shares: the columns of a record, the clock of the log, and the prefix of output topics."""

COORDINATES = ("topic", "partition", "offset")
TICKS = "ticks"
OUTPUT = "view."  # the prefix of the output topics, which no event type's name has
