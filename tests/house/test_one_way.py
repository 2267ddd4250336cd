"""One way from events to a view's states: `Compiled.totals_of`, which the stream and the batch layer share.

A second spelling could come to differ from the first, and then a rebuild would no longer equal the stream.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.house.tree import PROJECT, modules, plant

Place = tuple[str, str]  # a file and a function in it

# Who may call a view's transform or total its rows, and why.
ALLOWED: dict[Place, str] = {
    ("include/truelog/views/compiled_view.py", "transformed"): "the one place that applies a transform to events",
    ("include/truelog/views/compiled_view.py", "totals_of"): "the one place that totals what a transform selects",
    ("include/truelog/views/compiled_view.py", "compile_view"): "applies the transform to empty frames, for its schema",
    ("include/truelog/kernel/bad_records.py", "_failure"): "runs the transform alone, to see on which records it fails",
    ("include/truelog/reconcile/root_cause.py", "selected"): "carries each record's place through the transform",
    ("include/truelog/reconcile/root_cause.py", "causes"): "totals by record, to find the records that explain a row",
}


def steps(root: Path, allowed: Mapping[Place, str]) -> list[str]:
    """Steps from events to states outside of the functions that may take them, and permissions without use."""
    found = {
        (name, function): line for name, tree in modules(root, "include/truelog/*.py") for function, line in _of(tree)
    }
    problems = [
        f"{name}:{line} {function} transforms events or totals rows; call Compiled.totals_of"
        for (name, function), line in found.items()
        if (name, function) not in allowed
    ]
    return problems + [
        f"{name} {function} is on the list and takes no such step"
        for name, function in allowed
        if (name, function) not in found
    ]


def _of(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Each function that calls `….totals(…)`, `….transformed(…)` or `….transform(…)`, Spark's own functions aside."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and _is_step(call.func):
                    yield function.name, call.lineno


def _is_step(called: ast.expr) -> bool:
    if not isinstance(called, ast.Attribute) or ast.unparse(called.value) == "F":
        return False
    return called.attr in {"totals", "transform", "transformed"}


def test_events_become_states_in_one_place() -> None:
    assert steps(PROJECT, ALLOWED) == []


def test_a_second_way_is_seen(tmp_path: Path) -> None:
    planted = (
        "def rebuilt(compiled, events):\n    rows = compiled.view.transform(events)\n    return compiled.totals(rows)\n"
    )
    array = "def halves(F, column):\n    return F.transform(column, half)\n"
    plant(tmp_path, {"include/truelog/batch/rebuild.py": planted, "include/truelog/views/measures.py": array})
    allowed = {("include/truelog/views/measures.py", "halves"): "used to"}
    assert steps(tmp_path, allowed) == [
        "include/truelog/batch/rebuild.py:3 rebuilt transforms events or totals rows; call Compiled.totals_of",
        "include/truelog/views/measures.py halves is on the list and takes no such step",
    ]


def appliers(root: Path) -> list[str]:
    """Uses of the stream's `BatchApplier` outside of its module and of `streaming`."""
    return [
        f"{name} uses BatchApplier; batch work needs a BatchContext"
        for name, tree in modules(root, "include/truelog/*.py")
        if "BatchApplier"
        in {each.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for each in node.names}
        and not name.startswith("include/truelog/streaming/")
    ]


def test_batch_work_needs_no_applier() -> None:
    assert appliers(PROJECT) == []


def test_an_applier_in_batch_work_is_seen(tmp_path: Path) -> None:
    planted = "from truelog.kernel.apply_batch import BatchApplier\n"
    plant(tmp_path, {"include/truelog/streaming/stream.py": planted, "include/truelog/batch/rebuild.py": planted})
    assert appliers(tmp_path) == ["include/truelog/batch/rebuild.py uses BatchApplier; batch work needs a BatchContext"]
