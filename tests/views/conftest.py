"""The fixtures of a view's examples, asked once for each way of running: `run([event, …]) == [row, …]` for the rows
of the view, `ask("relation", [event, …])` for those of a relation that it presents.

The view is the one that the test file is named for.
"""

from collections.abc import Callable

import pytest

from tests.laws.lab import Lab
from tests.views.ways import WAYS, Row, Sent, Ways
from truelog import View
from truelog.views import catalogue

Run = Callable[[list[Sent]], list[Row]]
Ask = Callable[[str, list[Sent]], list[Row]]


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
def ask(ways: Ways, lab: Lab, name: str, view: View, way: str) -> Ask:
    return lambda relation, events: ways.relations(lab, name, view, events)[way][relation]
