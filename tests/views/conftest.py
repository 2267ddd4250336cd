"""The fixture `run` of a view's examples: `run([event, …]) == [row, …]`, asked once for each way of running.

The view is the one that the test file is named for.
"""

from collections.abc import Callable

import pytest

from tests.laws.lab import Lab
from tests.views.ways import WAYS, Row, Sent, Ways
from truelog import View, catalogue

Run = Callable[[list[Sent]], list[Row]]


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
    return catalogue.load(name)


@pytest.fixture
def run(ways: Ways, lab: Lab, name: str, view: View, way: str) -> Run:
    return lambda events: ways.rows(lab, name, view, events)[way]
