"""The difference of two versions by key is what a comparison of the rows, one by one, finds."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from tests.command import answer, truelog
from tests.library.versions.two_versions import SECOND, TwoVersions, deploy_two
from truelog import Sum
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.versions.difference import difference

rows = st.dictionaries(st.none() | st.text("ab'", max_size=2), st.none() | st.integers(0, 2), max_size=6)
same_database = hypothesis(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@same_database
@given(rows, rows)
def test_the_difference_is_that_of_the_rows(
    versions: TwoVersions, one: dict[str | None, int | None], other: dict[str | None, int | None]
) -> None:
    for version, stored in ((1, one), (2, other)):
        versions.store(version, stored.items())
        versions.reach(version, 5)
    found = difference(versions.settings, versions.name, 1, 2, limit=3)
    changed = {url for url in one.keys() & other.keys() if one[url] != other[url]}
    assert (found.missing, found.extra) == (len(one.keys() - other.keys()), len(other.keys() - one.keys()))
    assert (found.different, found.columns) == (len(changed), {"views": len(changed)} if changed else {})
    assert (found.rows, found.apart) == ((len(one), len(other)), 0)
    assert found.equal == (one == other)
    assert len(found.sample) == min(3, found.missing + found.extra + found.different)


def test_scripts_and_people_see_which_rows_differ(versions: TwoVersions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truelog.versions.difference._LEVEL_SECONDS", 0.1)
    versions.make_ready()
    found = answer("versions", "diff", versions.name, exit_code=1)
    assert found["sample"] == [{"one": {"url": "a", "views": 1}, "other": {"url": "a", "views": 2}}]
    assert "1 different" in truelog("versions", "diff", versions.name, COLUMNS="400").stdout
    versions.store(2, [("a", 1)])
    assert answer("versions", "diff", versions.name)["equal"]
    versions.reach(2, 7)  # a record that only version 2 has counted may explain a difference
    assert difference(versions.settings, versions.name, 1, 2).apart == 2
    assert truelog("versions", "diff", versions.name, "--version", "3").returncode == 2


def test_added_and_removed_columns_are_named_and_another_key_is_refused(
    postgresql: Settings, connection: Connection
) -> None:
    waited = deploy_two(postgresql, connection, replace(SECOND, measures={"waited": Sum()}, present={}))
    keyed = deploy_two(
        postgresql, connection, replace(SECOND, key=("url", "views"), measures={"waited": Sum()}, present={})
    )
    try:
        for each in (waited, keyed):
            each.run_both()
            each.reach(2, 5)
        found = answer("versions", "diff", waited.name, exit_code=1)
        assert (found["added"], found["removed"]) == (["waited bigint"], ["views bigint"])
        refused = truelog("versions", "diff", keyed.name, COLUMNS="400")
        assert refused.returncode == 2
        assert "cannot be compared by key" in refused.stderr
    finally:
        for each in (waited, keyed):
            each.forget()
