"""The views as Airflow's assets: whoever waits for one is told when its partials are new."""

from airflow.sdk import Asset, AssetAlias

# A task that does not know before it runs which views it is about names this, and adds assets to it.
RECOMPUTED = AssetAlias("recomputed_views")
_PREFIX = "view_"


def view_asset(view: str) -> Asset:
    return Asset(name=f"{_PREFIX}{view}", uri=f"truelog://views/{view}")


def view_of(asset: str) -> str:
    """The view that the asset of this name stands for."""
    return asset.removeprefix(_PREFIX)
