"""The views as Airflow assets. `recompute` announces new partials on them, and `reconcile` reads the announcements."""

from typing import Any

from airflow.sdk import Asset, AssetAlias

# An alias for tasks that learn only at run time which views they update. Such a task adds the assets to the alias.
RECOMPUTED = AssetAlias("recomputed_views")
_PREFIX = "view_"
_REPAIR, _ATTEMPT = "repair", "attempt"


def view_asset(view: str) -> Asset:
    return Asset(name=f"{_PREFIX}{view}", uri=f"truelog://views/{view}")


def announcement(*, repair: bool, attempt: str) -> dict[str, bool | str]:
    """An event's extra fields. The attempt distinguishes the events of a repeated run."""
    return {_REPAIR: repair, _ATTEMPT: attempt}


def recomputed_views(dag_run: Any, events: Any) -> dict[str, bool] | None:
    """The views whose new partials started this run, and whether each may be repaired; None for other runs.

    A view may be repaired only if all of its events allow it. Airflow also lists each event under its alias; those
    entries are ignored.
    """
    if dag_run.run_type != "asset_triggered":
        return None
    assets = [key for key in events if isinstance(key, Asset)]
    return {
        asset.name.removeprefix(_PREFIX): all(event.extra.get(_REPAIR, True) for event in events[asset])
        for asset in assets
    }
