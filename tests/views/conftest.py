"""Fixtures for a view's examples, parametrised by the way the view runs.

`run([event, …])` returns the rows of the view. `query("relation", [event, …])` returns the rows of a relation that the
view presents. The name of the test file selects the view.
"""

from collections.abc import Callable

import pytest

from tests.laws.lab import Lab
from tests.views.ways import WAYS, Row, Sent, Ways
from truelog import View
from truelog.views import catalogue

Run = Callable[[list[Sent]], list[Row]]
Query = Callable[[str, list[Sent]], list[Row]]


@pytest.fixture(scope="session")
def ways() -> Ways:
    return Ways()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return request.path.stem.removeprefix("test_")


@pytest.fixture(scope="module")
def view(name: str) -> View:
    return catalogue.load_view(name)


@pytest.fixture
def run(ways: Ways, lab: Lab, name: str, view: View, way: str) -> Run:
    return lambda events: ways.relations(lab, name, view, events)[way][None]


@pytest.fixture
def query(ways: Ways, lab: Lab, name: str, view: View, way: str) -> Query:
    return lambda relation, events: ways.relations(lab, name, view, events)[way][relation]


@pytest.fixture(params=("batch", "stream"))
def in_order(ways: Ways, lab: Lab, name: str, view: View, request: pytest.FixtureRequest) -> Run:
    """Like `run`, for a view whose rows depend on the order of the events in the log."""
    return lambda events: ways.relations(lab, name, view, events)[request.param][None]


@pytest.fixture(params=("batch", "stream"))
def in_order_query(ways: Ways, lab: Lab, name: str, view: View, request: pytest.FixtureRequest) -> Query:
    return lambda relation, events: ways.relations(lab, name, view, events)[request.param][relation]
