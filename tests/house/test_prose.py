"""The word list finds each habit in every kind of file and raises no false alarms on plain sentences."""

from pathlib import Path

import pytest

from tests.house import prose
from tests.house.corpus import Form, passages
from tests.house.prose import HABITS, main, problems, sample, sentences
from tests.house.tree import PROJECT, plant

# For each habit, in list order: a sentence with the habit and the plain sentence that replaces it.
PAIRS = (
    ("It counts twice. Of each batch it keeps the end.", "It keeps the end of each batch."),
    ("On-call is told within seconds.", "On-call gets a page within seconds."),
    ("The view stands at offset 7.", "The view is at offset 7."),
    ("A record that nobody has read.", "A record without a reader."),
    ("It waits for somebody to answer.", "It waits for the operator to answer."),
    ("The sum comes\nto 12 records.", "The sum is 12 records."),
    ("The view is the one that differs.", "This view differs."),
    ("Only those that failed run again.", "Only failed tasks run again."),
    ("It made no batch of late.", "It made no batch recently."),
    ("Three events are no good.", "Three events are invalid."),
    ("The record was set aside.", "The record was skipped."),
    ("It notes a wish of the operator.", "It stores the operator's request."),
    ("A crash may befall it at any point.", "It may crash at any point."),
    ("The topic was made anew.", "The topic was created again."),
    ("Two views, of which one is late.", "Two views. One is late."),
    ("The lease is held no more.", "The lease is no longer held."),
    ("It shows what became of the request.", "It shows the result of the request."),
    ("Whoever pressed it, whoever reads it.", "The user who pressed the button."),
    ("It goes on all the same.", "It continues."),
    ("The page says how far it is.", "The page shows its progress."),
    ("A string is no number.", "A string is not a number. There is no number."),
    ("The archive has\nall records.", "The archive contains all records. The log has lost records."),
    ("It shows the time of the merge of one of these views.", "It shows the time of one view's merge."),
    ("It lists the events, with the row after each.", "It lists the events, with the row after each event."),
)

PLANTED = {
    "README.md": "# A title\n\nFine text\nis told here.\n\n- Of each item.\n\n| a cell | is told |\n| --- | --- |\n",
    "docs/code.md": "```\nit was told\n```\n\nSay `told` or `stands`.\n",
    "include/a.py": '"""A docstring.\n\nIt was told.\n"""\n\nx = 1  # was told\n# Two lines,\n# of\n# which one.\n',
    "include/b.py": 'y = "a message is told of it"\nz = f"a message {y} of late"\nsql = "SELECT told FROM a WHERE b"\n',
    "include/c.sql": "SELECT told -- is told here\nFROM a;\n",
    "include/d.js": 'const told = "it is told here"; // nobody sees it\nconst url = "http://told.example";\n',
    "include/e.css": "p { color: red } /* Told in\n   red: told. */\n",
    "docs/f.yml": "# is told\nrules:\n  - summary: nobody reads it\n    told: 1\n",
    "Makefile": "# is told\ntold: install\n\ttold\n",
    "LICENSE": "It is told.\n",
    "docs/style.md": "not: it is told\n",
}


def test_the_project_has_a_pair_for_each_habit() -> None:
    assert len(PAIRS) == len(HABITS)


@pytest.mark.parametrize(("index", "pair"), list(enumerate(PAIRS)), ids=[habit[:30] for habit in HABITS])
def test_a_habit_is_found_and_its_replacement_is_not(tmp_path: Path, index: int, pair: tuple[str, str]) -> None:
    habit, plain = pair
    plant(tmp_path, {"docs/habit.md": habit + "\n", "docs/plain.md": plain + "\n"})
    found = problems(tmp_path)
    assert found
    assert all(each.startswith("docs/habit.md:") for each in found)
    assert any(each.endswith(list(HABITS.values())[index]) for each in found)


def test_habits_are_found_in_every_kind_of_file(tmp_path: Path) -> None:
    assert [problem.split(": ")[0] for problem in problems(plant(tmp_path, PLANTED))] == [
        "Makefile:1 'told'",
        "README.md:4 'told'",
        "README.md:6 'Of each'",
        "README.md:8 'told'",
        "docs/f.yml:1 'told'",
        "docs/f.yml:3 'nobody'",
        "include/a.py:3 'told'",
        "include/a.py:6 'told'",
        "include/a.py:8 'of which'",
        "include/b.py:1 'told'",
        "include/b.py:2 'of late'",
        "include/c.sql:1 'told'",
        "include/d.js:1 'nobody'",
        "include/d.js:1 'told'",
        "include/e.css:2 'told'",
    ]


def test_a_passage_knows_how_it_is_written(tmp_path: Path) -> None:
    found = {(each.path, each.form) for each in passages(plant(tmp_path, PLANTED))}
    assert {("README.md", Form.CELL), ("include/a.py", Form.TEXT), ("include/b.py", Form.STRING)} <= found


def test_only_whole_sentences_are_drawn(tmp_path: Path) -> None:
    text = (
        "# The title of a document.\n\nA whole sentence is drawn\nhere. Too short. Another `whole.` one follows here!\n"
    )
    text += "\n| The cell of a table is out. |\n\nNo full stop ends this\n\n1. A list has items, too.\n"
    plant(
        tmp_path, {"docs/a.md": text, "include/a.py": '"""Steps:\n\n1. The first of the steps.\n2. and no more\n"""\n'}
    )
    plant(tmp_path, {"tests/test_a.py": 'DATA = "These are the data of a test."\n'})
    assert list(sentences(tmp_path)) == [
        "docs/a.md:1 The title of a document.",
        "docs/a.md:3 A whole sentence is drawn here.",
        "docs/a.md:4 Another `whole.` one follows here!",
        "docs/a.md:10 A list has items, too.",
        "include/a.py:3 The first of the steps.",
    ]


def test_a_sample_depends_on_the_seed_alone() -> None:
    drawn = [sample(PROJECT, ["docs/*.md"], number=20, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 20


def test_the_command_ends_with_1_where_a_habit_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prose, "PROJECT", plant(tmp_path, {"docs/a.md": "It is told.\n", "docs/b.md": "It is here.\n"}))
    assert (main(["docs/a.md"]), main(["docs/b.md"]), main(["--sample", "9", "--seed", "1"])) == (1, 0, 0)
    assert "docs/a.md:1 'told'" in capsys.readouterr().out
