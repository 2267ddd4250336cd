"""The trace of a request: the header `traceparent` of W3C Trace Context, which goes into the headers of its records.

From there it goes into the output records of rows that these records alone have changed (`step_trace.py`). A header
that is not valid is left out, as the standard asks. An event is never refused for its trace.
"""

import re
from collections.abc import Iterable, Mapping

NAME = "traceparent"
# The version, the ids of the trace and of the sender's span, and flags. A later version may have more parts.
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[\x21-\x7e]{1,64})?")


def record_headers(traceparent: str) -> Mapping[str, bytes]:
    """The headers of the records of a request with this `traceparent`, which may be empty."""
    found = traceparent.strip()
    extended = found.count("-") > 3
    if not _FORM.fullmatch(found) or (extended and found.startswith("00-")):
        return {}
    return {NAME: found.encode()}


def of_record(headers: Iterable[tuple[str, bytes | None]]) -> str | None:
    """The trace in the headers of a record; None if there is no valid one, or if there are several."""
    found = [value for name, value in headers if name == NAME]
    if len(found) != 1 or found[0] is None:
        return None
    text = found[0].decode("ascii", "replace")
    return text if record_headers(text) == {NAME: found[0]} else None


def is_sampled(traceparent: str) -> bool:
    """Whether this is a valid `traceparent` whose sender samples the trace."""
    return bool(record_headers(traceparent)) and int(traceparent.strip()[53:55], 16) & 1 == 1


def id_of(traceparent: str) -> str:
    """The id of the trace, which all of its spans have."""
    return traceparent.strip()[3:35]
