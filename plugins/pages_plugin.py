"""The pages in Airflow's UI: what Airflow is told of them."""

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from pages.headers import EVERYWHERE, Headers

PREFIX = "/truelog"


class Pages:
    """The application, made when the first request comes: all of Airflow's processes load plugins."""

    @cached_property
    def app(self) -> Any:
        from pages.app import make

        return make()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


def _page(name: str, page: str, **more: object) -> dict[str, Any]:
    return {"name": name, "href": f"{PREFIX}/{page}", "destination": "nav", "url_route": f"truelog-{page}", **more}


class PagesPlugin(AirflowPlugin):
    """One entry of the navigation, whose pages link to each other; the others below *Plugins*, to have addresses."""

    name = "truelog_pages"
    fastapi_apps = [{"app": Pages(), "url_prefix": PREFIX, "name": "Truelog"}]  # noqa: RUF012  the base class says so
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
