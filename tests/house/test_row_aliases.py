"""A statement gives a whole row an internal name. Otherwise, a column of the same name would take its place."""

import re
from pathlib import Path

from tests.house.tree import PROJECT, plant, texts

WHOLE = re.compile(r"\b(?:row_to_json|to_jsonb)\((?P<alias>[a-z]\w*)\)|\bmd5\((?P<hashed>[a-z])::text\b")


def test_no_column_can_take_the_place_of_a_whole_row(tmp_path: Path) -> None:
    assert [(name, found[0]) for name, text in texts(PROJECT, "include/*.py") for found in WHOLE.finditer(text)] == []
    plant(
        tmp_path,
        {
            "include/a.py": 'QUERY = "SELECT row_to_json(x)::text FROM (SELECT 1) AS x"\n',
            "include/b.py": 'QUERY = "SELECT to_jsonb(t), to_jsonb(_row), md5(t::text) FROM state.a AS t"\n',
        },
    )
    found = [each[0] for _, text in texts(tmp_path, "include/*.py") for each in WHOLE.finditer(text)]
    assert found == ["row_to_json(x)", "to_jsonb(t)", "md5(t::text"]
