"""The keys of all advisory locks are in `truelog.storage.locks`, so that no two purposes share one."""

from collections.abc import Iterator
from pathlib import Path

from tests.house.layers import LIBRARY
from tests.house.tree import PROJECT, plant, texts
from truelog.storage.locks import Locks

HOME = f"{LIBRARY}/storage/locks.py"
IN_SQL = f"{LIBRARY}/storage/sql/views.sql"
# A file cannot use the enum, so it repeats one key. A sample of groups is hashed, and no lock.
OTHERS = {IN_SQL: Locks.APPLICATION.of("a.application"), f"{LIBRARY}/tables/fold/inputs.py": "hashtextextended(ROW("}


def keys_elsewhere(root: Path) -> list[str]:
    return [f"{name} hashes the key of a lock; add it to {HOME}" for name in sorted(_hashing(root))]


def _hashing(root: Path) -> Iterator[str]:
    for name, text in texts(root, f"{LIBRARY}/*.py", f"{LIBRARY}/*.sql", "include/runtime/*.py", "plugins/*.py"):
        if name != HOME and "hashtext" in text.replace(OTHERS.get(name, HOME), ""):
            yield name


def test_the_keys_of_locks_are_in_one_module() -> None:
    assert keys_elsewhere(PROJECT) == []
    assert all(text in (PROJECT / name).read_text() for name, text in OTHERS.items())


def test_no_two_locks_have_one_key() -> None:
    """Two releases run beside each other during an upgrade, so these texts are as they were."""
    assert [str(lock) for lock in Locks] == [
        "hashtext('truelog.alert')",
        "hashtext('truelog.event_version')",
        "hashtext('truelog.erasure')",
        "hashtext('truelog.migrate')",
        "hashtext('truelog.output')",
        "hashtextextended('truelog.replay', 0)",
        "hashtextextended(%s, 0)",
        "hashtextextended('launch ' || %s, 0)",
        "hashtextextended('tell ' || %s, 0)",
        "hashtextextended(%s, 1)",
        "hashtextextended('turn ' || %s, 1)",
        "hashtextextended('keys in use ' || %s, 1)",
        "hashtextextended('reconcile ' || %s, 1)",
        "hashtextextended(%s, 2)",
    ]


def test_a_key_elsewhere_is_seen(tmp_path: Path) -> None:
    taken = "connection.execute(\"SELECT pg_advisory_lock(hashtext('truelog.other'))\")\n"
    plant(tmp_path, {f"{LIBRARY}/apps/x.py": taken, HOME: taken, IN_SQL: f"SELECT {OTHERS[IN_SQL]}"})
    assert keys_elsewhere(tmp_path) == [f"{LIBRARY}/apps/x.py hashes the key of a lock; add it to {HOME}"]
