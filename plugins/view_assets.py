"""The views as Airflow's assets: whoever waits for one is told when its partials are new, and what to do about it."""

from typing import Any

from airflow.sdk import Asset, AssetAlias

# A task that does not know before it runs which views it is about names this, and adds assets to it.
RECOMPUTED = AssetAlias("recomputed_views")
_PREFIX = "view_"
_REPAIR, _ATTEMPT = "repair", "attempt"


def view_asset(view: str) -> Asset:
    return Asset(name=f"{_PREFIX}{view}", uri=f"truelog://views/{view}")


def announced(*, repair: bool, attempt: str) -> dict[str, bool | str]:
    """What an event says beside that partials are new: a run that is repeated announces them again, in another try."""
    return {_REPAIR: repair, _ATTEMPT: attempt}


def told(events: Any) -> dict[str, bool]:
    """The views that these events tell of, and whether each may be repaired: not where one of its events forbids it.

    Events come with the alias that told of them as well.
    """
    views = [asset for asset in events if isinstance(asset, Asset)]
    return {
        view.name.removeprefix(_PREFIX): all(event.extra.get(_REPAIR, True) for event in events[view]) for view in views
    }
