"""Fixtures of the library's tests: an archive without a broker, a log with its archive, and two environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from truelog.support.settings import Settings

if TYPE_CHECKING:
    # Imported where they are used, so that a run without Spark does not wait for the import.
    from tests.beds.archived import Archived
    from tests.beds.lab import Lab
    from tests.library.letters import Letters


@pytest.fixture
def ground(request: pytest.FixtureRequest, lab: Lab, s3: Settings) -> Archived:
    """An archive of clicks, and a view of them. The nearest mark `ground` names the view, and a function that fills it.

    pytestmark = pytest.mark.ground(view=TIMELINE, filled=two_followers)
    """
    from tests.beds.archived import PER_URL, new_archive

    mark = request.node.get_closest_marker("ground")
    made = new_archive(lab, s3, mark.kwargs.get("view", PER_URL))
    if filled := mark.kwargs.get("filled"):
        filled(made)
    return made


@pytest.fixture
def letters(lab: Lab, platform: Settings) -> Letters:
    """A view of dead letters and an archive, which have both reached the end of the log."""
    from tests.library.letters import new_letters

    return new_letters(lab, platform)


@pytest.fixture(scope="module")
def red(kafka: Settings) -> Settings:
    """An environment on the Kafka of `blue`."""
    from tests.library.two_environments import namespaced

    return namespaced(kafka, "red", 3)


@pytest.fixture(scope="module")
def blue(kafka: Settings) -> Settings:
    """An environment on the Kafka of `red`."""
    from tests.library.two_environments import namespaced

    return namespaced(kafka, "blue", 1)
