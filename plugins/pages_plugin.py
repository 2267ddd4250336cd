"""Registers the pages, the dashboard card and the response headers with Airflow."""

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from pages.headers import EVERYWHERE, Headers

PREFIX, ROUTE = "/truelog", "truelog"
PLUGIN = f"/plugin/{ROUTE}{PREFIX}"  # the pages inside Airflow, as Airflow shows them in the address bar


class Pages:
    """The web application, built on the first request because every Airflow process loads plugins."""

    @cached_property
    def app(self) -> Any:
        from pages.app import make

        return make()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


class PagesPlugin(AirflowPlugin):
    """Adds one navigation entry. All pages are below its address, so that Airflow marks the entry on every page."""

    name = "truelog_pages"
    fastapi_apps = [{"app": Pages(), "url_prefix": PREFIX, "name": "Truelog"}]  # noqa: RUF012  the base class declares it so
    fastapi_root_middlewares = [  # noqa: RUF012
        {"middleware": Headers, "args": [], "kwargs": {"headers": EVERYWHERE}, "name": "headers"},
    ]
    external_views = [  # noqa: RUF012
        {
            "name": "Truelog",
            "href": f"{PREFIX}/flow",
            "destination": "nav",
            "url_route": ROUTE,
            "nav_top_level": True,
            "icon": f"{PREFIX}/static/icon.svg",
        }
    ]
    react_apps = [  # noqa: RUF012
        {"name": "TruelogVitals", "bundle_url": f"{PREFIX}/static/card.js", "destination": "dashboard"}
    ]
