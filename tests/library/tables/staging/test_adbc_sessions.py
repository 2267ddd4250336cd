"""Kept sessions: reused by the next block, and replaced after a failure."""

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
import pytest

from tests.beds.lab import Lab
from truelog.tables.staging import adbc_sessions

PID = pa.schema([("pid", pa.int32())])


def pid(uri: str) -> int:
    [batch] = adbc_sessions.select_each(uri, ["SELECT pg_backend_pid() AS pid"], PID)
    return int(batch["pid"][0].as_py())


def test_a_session_is_kept_until_it_fails(lab: Lab) -> None:
    uri = lab.settings.staging_uri()
    first = pid(uri)
    assert pid(uri) == first
    with pytest.raises((adbc.Error, OSError)):  # PyArrow raises the second
        list(adbc_sessions.select_each(uri, ["SELECT pg_terminate_backend(pg_backend_pid())"], PID))
    assert pid(uri) != first


def test_rows_have_the_types_that_the_caller_expects(lab: Lab) -> None:
    schema = pa.schema([("n", pa.int64()), ("word", pa.string())])
    queries = [f"SELECT {n}::int AS n, 'w{n}' AS word" for n in (1, 2)]
    found = list(adbc_sessions.select_each(lab.settings.staging_uri(), queries, schema))
    assert [row for batch in found for row in batch.to_pylist()] == [{"n": n, "word": f"w{n}"} for n in (1, 2)]
    assert all(batch.schema == schema for batch in found)


def test_blocks_at_the_same_time_have_sessions_of_their_own(lab: Lab) -> None:
    uri = lab.settings.staging_uri()
    with adbc_sessions.kept(uri) as one, adbc_sessions.kept(uri) as other:
        assert one is not other
