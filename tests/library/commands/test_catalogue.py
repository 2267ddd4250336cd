"""The catalogue of commands: files that declare none, and two folds of one event type."""

from pathlib import Path

import pytest

from truelog.commands import catalogue
from truelog.commands.claims import CLAIM
from truelog.support.settings import PROJECT

ADD = (PROJECT / "include" / "commands" / "add_to_cart.py").read_text()


def test_a_new_file_is_a_new_command(tmp_path: Path) -> None:
    (tmp_path / "put_in_cart.py").write_text(ADD)
    found = catalogue.load(tmp_path)
    assert (list(found.commands), sorted(found.folds)) == (["put_in_cart"], ["cart_event", CLAIM])


@pytest.mark.parametrize("text", ["1 / 0", "COMMAND = 5", "raise SystemExit", "import os; os._exit(0)"])
def test_a_file_without_a_command_stops_no_other_command(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.py").write_text(text)
    (tmp_path / "put_in_cart.py").write_text(ADD)
    found = catalogue.load(tmp_path)
    assert [*found.commands] == ["put_in_cart"]
    assert "bad.py" in found.refused["bad"]


def test_two_folds_of_one_event_type_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(ADD)
    other = ADD.replace("cart.FOLD", "Fold('cart_event', lambda state, event: {})")
    (tmp_path / "two.py").write_text(other.replace("import Command,", "import Command, Fold,"))
    found = catalogue.load(tmp_path)
    assert [*found.commands] == ["one"]
    assert "another fold of cart_event" in found.refused["two"]


def test_a_fold_has_the_code_of_its_file() -> None:
    folds = catalogue.load().folds
    assert catalogue.code_of(folds["cart_event"]) != catalogue.code_of(folds[CLAIM])
