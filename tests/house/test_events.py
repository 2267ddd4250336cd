"""Every event type loads, and its file, its class and each of its fields are documented."""

import ast
from pathlib import Path

import pytest

from tests.house.tree import PROJECT, modules, plant
from truelog.schema.loading.events import load_events
from truelog.support.errors import BadDeclaration


def undocumented(root: Path) -> list[str]:
    declared = {
        name: tree for name, tree in modules(root, "include/events/*.py") if not Path(name).name.startswith("_")
    }
    missing = [
        f"{name}:{getattr(node, 'lineno', 1)} has no docstring"
        for name, tree in declared.items()
        for node in (tree, *tree.body)
        if isinstance(node, ast.Module | ast.ClassDef) and not ast.get_docstring(node)
    ]
    types = load_events(root / "include" / "events")
    return (
        missing
        + [
            f"include/events/{each.name}.py: the field {field.name} has no description"
            for each in types.values()
            for field in each.fields
            if not field.description
        ]
        + [
            f"include/events/{each.name}.py: the derived column {name} has no description"
            for each in types.values()
            for derived in each.derived
            for name in derived.names
            if not derived.descriptions.get(name)
        ]
    )


def test_every_event_type_is_documented() -> None:
    assert len(load_events()) > 1
    assert undocumented(PROJECT) == []


EVENT = r"""{module}
from pydantic import Field
from truelog import Derived, Event, Topic
TOPIC = Topic(key=None, subject=(), partitions=1, retention="1 day")
DERIVED = [Derived("text", r"(?P<word>\w+)", {derived})]
class Said(Event):
    {model}
    text: str = Field({about})
"""


def test_missing_descriptions_are_found(tmp_path: Path) -> None:
    spoken = EVENT.format(
        module='"""What."""', model='"""What."""', about='description="What."', derived='{"word": "What."}'
    )
    silent = EVENT.format(module="", model="", about="", derived="{}")
    plant(tmp_path, {"include/events/spoken.py": spoken, "include/events/silent.py": silent})
    assert undocumented(tmp_path) == [
        "include/events/silent.py:1 has no docstring",
        "include/events/silent.py:6 has no docstring",
        "include/events/silent.py: the field text has no description",
        "include/events/silent.py: the derived column word has no description",
    ]


def test_a_broken_event_type_is_found(tmp_path: Path) -> None:
    plant(tmp_path, {"include/events/broken.py": '"""No declaration."""\n'})
    with pytest.raises(BadDeclaration, match=r"broken\.py"):
        undocumented(tmp_path)
