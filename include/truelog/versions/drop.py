"""Drops a version of a view that readers do not see and no file declares, with its tables, partials and output."""

from truelog.maintenance.superseded import Version, drop_version
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, connect
from truelog.support import wait
from truelog.support.errors import BadInput, NotReady
from truelog.support.settings import Settings
from truelog.tables.shown import readable
from truelog.versions.version_state import VersionState, version_states

_STOP_SECONDS = 30.0  # how long to wait until the application no longer runs the version
_POLL_SECONDS = 0.5
_LEAVE = "UPDATE truelog.view SET deployed_at = NULL WHERE (view, version) = (%s, %s)"


def drop(settings: Settings, view: str, version: int, *, doer: str) -> None:
    """Drop a version. There is no way back to it then.

    Raises:
        BadInput: there is no such version, readers or a share of them see it, or the view's file declares it.
        NotReady: its application still runs it, or a reader still uses its tables.
    """
    with connect(settings, autocommit=True) as connection:
        with connection.transaction():
            readable.lock(connection, view)  # readers may be moving to the version at this moment
            state = _state(settings, connection, view, version)
            if state.serving:
                raise BadInput(f"Readers of {view} see version {version}. Move them to another version first.")
            if state.share:
                raise BadInput(
                    f"{state.share} % of the API's readers of {view} get version {version}. Take the share back first: "
                    f"`truelog versions share {view} {version} 0`."
                )
            if state.declared:
                raise BadInput(f"The file of {view} declares version {version}. Change `version` in the file first.")
            connection.execute(_LEAVE, (view, version))
        if not wait.poll(lambda: not _state(settings, connection, view, version).runs, _STOP_SECONDS, _POLL_SECONDS):
            raise NotReady(f"An application still runs version {version} of {view}. Drop it again in a minute.")
        if not drop_version(settings, connection, Version(view, version)):
            raise NotReady(f"Version {version} of {view} is in use: a query or another view reads it. Drop it later.")
        audit_trail.record_operation(connection, OperationKind.DROP, view, doer, f"version {version}")


def _state(settings: Settings, connection: Connection, view: str, version: int) -> VersionState:
    found = [each for each in version_states(settings, connection, [view]) if each.version == version]
    if not found:
        raise BadInput(f"{view} has no version {version}: see `truelog versions list {view}`.")
    return found[0]
