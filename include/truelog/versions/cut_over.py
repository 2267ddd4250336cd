"""Cut-over: readers move from one version of a view to another, or back, in one transaction.

1. Lock the version that readers see, so that it merges nothing while readers move.
2. Wait until the other version has all of its records. Readers never go back in time.
3. Replace what readers see under the view's name: the view, its side tables and what it presents.

Readers wait for the third step only, at most as long as a transaction may wait for them. If a long query or a merge
holds a lock, the transaction is repeated.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, connect, read_value
from truelog.support import faults, wait
from truelog.support.errors import BadInput, NotReady
from truelog.support.settings import Settings
from truelog.tables.deploy import impatient
from truelog.tables.shown import readable
from truelog.versions.version_state import VersionState, version_states

_LOCK = "SELECT FROM truelog.view WHERE (view, version) = (%s, %s) FOR UPDATE"
_HELD = """
    UPDATE truelog.view SET held = version IS NOT DISTINCT FROM %(held)s::integer
    WHERE view = %(view)s AND held <> (version IS NOT DISTINCT FROM %(held)s::integer)
"""
_LOCKED_SECONDS = 2.0  # how long the version that readers see may merge nothing
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Move:
    """A move of the readers of a view from one version to another."""

    view: str
    former: int
    version: int
    holds: bool = False  # the former version, so that readers return to it only on request


def cut_over(settings: Settings, view: str, version: int | None = None, *, doer: str) -> Move:
    """Move readers to a version that is built and proved; to the declared version if None.

    Raises:
        BadInput: there is no such version, or readers see it already.
        NotReady: the version is not built, not proved, or lacks records.
    """
    with connect(settings, autocommit=True) as connection:
        states = version_states(settings, connection, [view])
        to = chosen(view, states, version)
        if obstacle := to.obstacle(settings.cut_over_proof_seconds):
            raise NotReady(obstacle)
        return _move(settings, connection, Move(view, serving(view, states).version, to.version), doer)


def back(settings: Settings, view: str, version: int | None = None, *, doer: str) -> Move:
    """Move readers back to the version that they saw before. They return to the other one only on request.

    The version needs no new proof, because readers saw it. A comparison that found it DIFFERENT forbids the way back.
    The caller may state the expected version. A repeated request then does not move readers a second time.

    Raises:
        BadInput: readers saw no other version lately, or another one than the caller expects.
        NotReady: the version is stalled, known to be wrong, or lacks records.
    """
    with connect(settings, autocommit=True) as connection:
        states = version_states(settings, connection, [view])
        found = [each for each in states if each.former and not each.serving and each.runs]
        if not found:
            raise BadInput(f"No version of {view} runs that readers saw before: see `truelog versions list {view}`.")
        [to] = found
        if version not in (None, to.version):
            raise BadInput(f"Readers of {view} would go back to version {to.version}, not to {version}: look again.")
        if to.stall:
            raise NotReady(to.stall)
        if to.verdict == "DIFFERENT":
            raise NotReady(f"Version {to.version} of {view} is known to be wrong: its last comparison found DIFFERENT.")
        return _move(settings, connection, Move(view, serving(view, states).version, to.version, holds=True), doer)


def serving(view: str, states: list[VersionState]) -> VersionState:
    """The version that readers see.

    Raises:
        BadInput: they see none.
    """
    found = [each for each in states if each.serving]
    if not found:
        raise BadInput(f"Readers see no version of {view} yet: see `truelog status`.")
    return found[0]


def chosen(view: str, states: list[VersionState], version: int | None) -> VersionState:
    """The version to which readers are to move: the declared version if None.

    Raises:
        BadInput: there is no such version, or readers see it already.
    """
    found = [each for each in states if (each.declared if version is None else each.version == version)]
    if not found:
        which = "declared version that an application has deployed" if version is None else f"version {version}"
        raise BadInput(f"{view} has no {which}: see `truelog versions list`.")
    if found[0].serving:
        raise BadInput(f"Readers of {view} see version {found[0].version} already.")
    return found[0]


def when_level(settings: Settings, connection: Connection, move: Move, act: Callable[[], None]) -> None:
    """Act in a transaction in which the version has all records that readers see.

    Raises:
        BadInput: readers have moved meanwhile.
        NotReady: the version lacks records, or a query or a merge holds what readers see.
    """
    until = time.monotonic() + settings.cut_over_catch_up_seconds
    while True:
        try:
            seconds = max(until - time.monotonic(), 0.0)
            if _catches_up(settings, connection, move, seconds) and _try(settings, connection, move, act):
                return
        except psycopg.errors.LockNotAvailable as error:
            if time.monotonic() >= until:
                raise NotReady(f"A query holds what readers of {move.view} see, or a merge takes long.") from error
        if time.monotonic() >= until:
            raise NotReady(
                f"Version {move.version} of {move.view} still lacks records that readers see, after "
                f"{settings.cut_over_catch_up_seconds:g} s. Is its stream running? See `truelog versions list`."
            )


def _move(settings: Settings, connection: Connection, move: Move, doer: str) -> Move:
    def act() -> None:
        shared = readable.shared(connection, move.view)
        readable.show(connection, move.view, move.version)  # 3
        connection.execute(_HELD, {"view": move.view, "held": move.former if move.holds else None})
        about = f"from version {move.former} to version {move.version}"
        if shared is not None:
            about += f"; before, {shared[1]} % of the API's readers got version {shared[0]}"
        audit_trail.record_operation(connection, OperationKind.CUT_OVER, move.view, doer, about)
        faults.reach("cut_over.shown")

    when_level(settings, connection, move, act)
    faults.reach("cut_over.committed")
    return move


def _try(settings: Settings, connection: Connection, move: Move, act: Callable[[], None]) -> bool:
    """Act in one transaction, unless the version does not get the last records soon. Return whether it has acted.

    Raises:
        LockNotAvailable: of psycopg.
    """
    with impatient(connection):
        connection.execute(_LOCK, (move.view, move.former))  # 1
        faults.reach("cut_over.locked")
        served = read_value(connection, "SELECT version FROM truelog.deployed WHERE view = %s", (move.view,))
        if served != move.former:
            raise BadInput(f"Readers of {move.view} have moved to version {served} meanwhile.")
        if not _catches_up(settings, connection, move, _LOCKED_SECONDS):  # 2
            return False
        act()
    return True


def _catches_up(settings: Settings, connection: Connection, move: Move, seconds: float) -> bool:
    """Wait until the version has all records that readers see. Return whether it has them in the end."""

    def has_all() -> bool:
        states = version_states(settings, connection, [move.view])
        return any(each.version == move.version and not each.behind for each in states)

    return wait.poll(has_all, seconds, _POLL_SECONDS)
