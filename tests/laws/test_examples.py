"""All examples of a view are cases of one run, but an example that fails leaves the others their rows."""

import pytest

from tests.beds.archived import PER_URL
from tests.beds.lab import Lab
from tests.views.examples import WAYS, Example, sent
from tests.views.ways import Ways


def clicked(search_id: str) -> Example:
    """Two clicks. The transform of `PER_URL` fails on a `search_id` that is not a number."""
    return Example([sent("click", url="a", search_id=each, visitor_id="ann") for each in ("1", search_id)])


def spent(ways: Ways, lab: Lab, example: Example) -> list[int]:
    """The totals of the example's rows, one for each way."""
    found = ways.relations(lab, example)
    return [row["spent"] for way in WAYS for row in found[way][None]]


def test_all_examples_of_a_view_run_together(lab: Lab) -> None:
    first, second, other_view = clicked("2"), clicked("40"), Example([], view=PER_URL)
    ways = Ways("spent", PER_URL, [first, second, other_view])
    assert spent(ways, lab, first) == [3, 3, 3]
    assert set(ways.found) == {first, second}
    assert spent(ways, lab, second) == [41, 41, 41]


def test_an_example_that_fails_does_so_alone(lab: Lab) -> None:
    good, bad = clicked("2"), clicked("no number")
    ways = Ways("spent", PER_URL, [good, bad])
    assert spent(ways, lab, good) == [3, 3, 3]
    assert "no number" in str(ways.unexplained), "no example has failed alone yet"
    with pytest.raises(Exception, match="no number"):
        ways.relations(lab, bad)
    assert ways.unexplained is None
