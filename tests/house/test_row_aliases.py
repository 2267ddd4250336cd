"""A statement gives a whole row an internal name. Otherwise, a column of the same name would take its place."""

import re
from pathlib import Path

from tests.house.tree import PROJECT, plant, texts

WHOLE = re.compile(r"\b(?:row_to_json|to_jsonb)\((?P<alias>[a-z]\w*)\)::text FROM")


def test_no_column_can_take_the_place_of_a_whole_row(tmp_path: Path) -> None:
    assert [
        (name, found["alias"]) for name, text in texts(PROJECT, "include/*.py") for found in WHOLE.finditer(text)
    ] == []
    plant(tmp_path, {"include/a.py": 'QUERY = "SELECT row_to_json(x)::text FROM (SELECT 1) AS x"\n'})
    assert [found["alias"] for _, text in texts(tmp_path, "include/*.py") for found in WHOLE.finditer(text)] == ["x"]
