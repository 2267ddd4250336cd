"""Share: a part of the API's readers gets a version before all readers move to it.

A share demands what a cut-over demands: the version is built, proved EQUAL, and has all records that readers see. Each
reader has a slot (`truelog.serving.reader_slot`), so a larger share has all readers of a smaller one. A move of all
readers ends the share in its transaction (`truelog.tables.shown.readable.show`).
"""

from dataclasses import dataclass

from truelog.serving.reader_slot import SLOTS
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, connect
from truelog.support.errors import BadInput, NotReady
from truelog.support.settings import Settings
from truelog.versions.cut_over import Move, chosen, serving, when_level
from truelog.versions.version_state import version_states

_GIVE = """
    INSERT INTO truelog.version_share (view, version, percent) VALUES (%s, %s, %s)
    ON CONFLICT (view) DO UPDATE SET version = excluded.version, percent = excluded.percent, since = now()
    WHERE version_share.version = excluded.version
"""
_LESS = "UPDATE truelog.version_share SET percent = %s, since = now() WHERE (view, version) = (%s, %s) AND percent > %s"


@dataclass(frozen=True)
class Share:
    """How many percent of the API's readers of a view get this version. 0: all of them get what other readers see."""

    view: str
    version: int
    percent: int


def share(settings: Settings, view: str, version: int, percent: int, *, doer: str) -> Share:
    """Let a percentage of the API's readers get a version, instead of the percentage before. 0 takes the share back.

    Raises:
        BadInput: there is no such version, all readers see it already, another version has a share, or the percentage
            is not one.
        NotReady: the version is not built, not proved, or lacks records.
    """
    if not 0 <= percent <= SLOTS:
        raise BadInput(f"A share is a percentage from 0 to {SLOTS}, not {percent}.")
    wanted = Share(view, version, percent)
    with connect(settings, autocommit=True) as connection:
        states = version_states(settings, connection, [view])
        to = chosen(view, states, version)
        others = [each for each in states if each.share and each.version != version]
        if others:
            [other] = others
            raise BadInput(
                f"{other.share} % of the API's readers of {view} get version {other.version}. Take that share back "
                f"first: `truelog versions share {view} {other.version} 0`."
            )
        if percent <= to.share:  # fewer readers need no proof, because the others already see what they get then
            _reduce(connection, wanted, doer)
            return wanted
        if obstacle := to.obstacle(settings.cut_over_proof_seconds):
            raise NotReady(obstacle)
        move = Move(view, serving(view, states).version, version)
        when_level(settings, connection, move, lambda: _give(connection, wanted, doer))
        return wanted


def _reduce(connection: Connection, wanted: Share, doer: str) -> None:
    """Let fewer readers get the version, or none. This waits for no merge."""
    version = wanted.view, wanted.version
    with connection.transaction():
        if wanted.percent:
            changed = connection.execute(_LESS, (wanted.percent, *version, wanted.percent))
        else:
            changed = connection.execute("DELETE FROM truelog.version_share WHERE (view, version) = (%s, %s)", version)
        if changed.rowcount:
            _record(connection, wanted, doer)


def _give(connection: Connection, wanted: Share, doer: str) -> None:
    given = connection.execute(_GIVE, (wanted.view, wanted.version, wanted.percent))
    if not given.rowcount:
        raise BadInput(f"Another version of {wanted.view} has got a share meanwhile: see `truelog versions list`.")
    _record(connection, wanted, doer)


def _record(connection: Connection, wanted: Share, doer: str) -> None:
    about = f"{wanted.percent} % of the API's readers get version {wanted.version}"
    audit_trail.record_operation(connection, OperationKind.SHARE, wanted.view, doer, about)
