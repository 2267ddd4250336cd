"""Registers the pages, the dashboard card and the response headers with Airflow."""

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from pages.headers import EVERYWHERE, Headers

PREFIX = "/truelog"


class Pages:
    """The web application, built on the first request because every Airflow process loads plugins."""

    @cached_property
    def app(self) -> Any:
        from pages.app import make

        return make()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


def _page(name: str, page: str, **options: object) -> dict[str, Any]:
    return {"name": name, "href": f"{PREFIX}/{page}", "destination": "nav", "url_route": f"truelog-{page}", **options}


class PagesPlugin(AirflowPlugin):
    """Adds one navigation entry. The other pages appear under *Plugins*, so that each page has an address."""

    name = "truelog_pages"
    fastapi_apps = [{"app": Pages(), "url_prefix": PREFIX, "name": "Truelog"}]  # noqa: RUF012  the base class declares it so
    fastapi_root_middlewares = [  # noqa: RUF012
        {"middleware": Headers, "args": [], "kwargs": {"headers": EVERYWHERE}, "name": "headers"}
    ]
    external_views = [  # noqa: RUF012
        _page("Truelog", "streams", nav_top_level=True),
        _page("Views", "views", category="Truelog"),
        _page("Reconciliations", "reconciliations", category="Truelog"),
        _page("Backfills", "backfills", category="Truelog"),
        _page("Quality", "quality", category="Truelog"),
        _page("Lag", "lag", category="Truelog"),
        _page("Alerts", "alerts", category="Truelog"),
        _page("Operations", "operations", category="Truelog"),
    ]
    react_apps = [  # noqa: RUF012
        {"name": "TruelogVitals", "bundle_url": f"{PREFIX}/static/card.js", "destination": "dashboard"}
    ]
