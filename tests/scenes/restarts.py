"""Services that were killed and that the supervisor starts again."""

import runtime
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings


def pids(settings: Settings, *names: str) -> dict[str, int]:
    """The processes of these services, which are running."""
    found = {each.name: each.pid for each in runtime.status(settings) if each.name in names}
    running = {name: pid for name, pid in found.items() if pid is not None}
    assert running.keys() == {*names}
    return running


def require_restarted(settings: Settings, before: dict[str, int]) -> None:
    """Raise ServiceDown unless each of these services is ready in another process than before."""
    states = [each for each in runtime.status(settings) if each.name in before]
    if waiting := [each for each in states if each.state != "READY" or each.pid == before[each.name]]:
        raise ServiceDown(str(waiting))
