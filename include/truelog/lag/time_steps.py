"""The steps of a chart over time. Steps have numbers: step `n` begins `n` step lengths after 1970."""

from truelog.storage.database import Connection, read_value


def step_numbers(connection: Connection, span: float, step: float) -> range:
    """The numbers of the steps of the last `span` seconds, by the database's clock. A step lasts `step` seconds."""
    last = int(read_value(connection, "SELECT extract(epoch FROM now())::float8") // step)
    return range(last - int(span // step), last + 1)
