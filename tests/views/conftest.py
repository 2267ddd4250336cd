"""Fixtures for a view's examples, which `examples.py` describes."""

from collections.abc import Iterator

import pytest

from tests.beds.lab import Lab
from tests.views.examples import Example, Relations, Rows
from tests.views.ways import Ways
from truelog import View
from truelog.views import catalogue


@pytest.fixture(scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return request.path.stem.removeprefix("test_")


@pytest.fixture(scope="module")
def view(name: str) -> View:
    return catalogue.load_view(name)


@pytest.fixture(scope="module")
def ways(request: pytest.FixtureRequest, name: str, view: View) -> Iterator[Ways]:
    """Runs the examples of those tests of the file that this run of pytest has selected."""
    tests = (test for test in request.session.items if test.path == request.path and hasattr(test, "callspec"))
    examples = (test.callspec.params.get("example") for test in tests)
    ways = Ways(name, view, list(dict.fromkeys(each for each in examples if isinstance(each, Example))))
    yield ways
    if ways.unexplained:
        raise ways.unexplained


@pytest.fixture
def relations(ways: Ways, lab: Lab, example: Example, way: str) -> Relations:
    return ways.relations(lab, example)[way]


@pytest.fixture
def rows(relations: Relations) -> Rows:
    return relations[None]
