"""Spark and PostgreSQL compute equal hashes for equal rows, even hostile ones, and different hashes otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from tests.beds.lab import Lab, cases
from tests.laws.events import of_case
from tests.laws.views import BY_SHAPE, VIEWS
from truelog import Group, Join
from truelog.tables import table_hash


@pytest.mark.parametrize("name", BY_SHAPE)
def test_both_engines_compute_the_same_hashes(lab: Lab, name: str) -> None:
    drawn = enumerate(cases(lab.types, VIEWS[name].reads))
    logs = [[of_case(number, each) for each in log] for number, log in drawn]
    _, in_database, in_spark = lab.digests(name, VIEWS[name], logs)

    least = 10 if isinstance(VIEWS[name], Group | Join) else table_hash.BUCKETS / 2
    assert table_hash.count_rows(in_database) > len(in_database) > least
    assert table_hash.unequal_buckets(in_database, in_spark) == []


def test_an_altered_row_changes_the_hash_of_its_bucket_alone(lab: Lab) -> None:
    compiled, before, _ = lab.digests("every_measure", VIEWS["every_measure"], cases(lab.types, ("page_view",)))
    table = sql.Identifier("recon", compiled.own.name)

    for column in compiled.own.measure_columns:
        changed = lab.connection.execute(
            sql.SQL(
                "UPDATE {} SET {column} = NULL WHERE ctid = "
                "(SELECT ctid FROM {} WHERE {column} IS NOT NULL LIMIT 1) RETURNING {}"
            ).format(table, table, table_hash.bucket_sql(compiled.own), column=sql.Identifier(column))
        ).fetchone()
        assert changed, f"no row has a {column}"
        after = table_hash.hash_table(lab.connection, compiled.own, table)
        assert table_hash.unequal_buckets(before, after) == list(changed), column
        before = after


def test_a_bucket_that_one_table_lacks_is_unequal() -> None:
    one, other = table_hash.BucketHash(1, 2, 3), table_hash.BucketHash(1, 2, 4)
    assert table_hash.unequal_buckets({1: one, 2: one, 5: one}, {2: one, 3: one, 5: other}) == [1, 3, 5]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))))
def test_law_the_hash_of_parts_gives_the_hash_of_the_whole(rows: list[tuple[int, bool, int, int]]) -> None:
    def hashed(chosen: list[tuple[int, bool, int, int]]) -> table_hash.TableHash:
        return table_hash.total([{number: table_hash.BucketHash(1, high, low)} for number, _, high, low in chosen])

    some, others = ([row for row in rows if row[1] is each] for each in (True, False))
    whole = hashed(rows)
    assert table_hash.total([hashed(some), hashed(others)]) == whole
    assert table_hash.replaced(whole, hashed(some), hashed(others)) == hashed([*others, *others])
    assert table_hash.sum_of(whole.values()).rows == len(rows)
    assert [table_hash.BucketHash.parse(each.rows, each.hash) for each in whole.values()] == list(whole.values())
