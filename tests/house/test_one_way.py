"""The only way from events to a view's states is `Table.totals_of`, which the stream and the batch layer share.

Two implementations could diverge, and then a rebuild would no longer equal the stream.
"""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.house.tree import PROJECT, modules, plant, unpermitted

LIBRARY = "include/truelog/*.py"

# The modules that may call a view's transform or total its rows, and why.
ALLOWED = {
    "include/truelog/views/view.py": "applies the transform to the events that are not too late",
    "include/truelog/tables/fold/compile.py": "applies a Group's transform, and adds the coordinates of its inputs",
    "include/truelog/tables/table.py": "defines Table.totals_of",
    "include/truelog/tables/added/compile.py": "applies a transform to empty frames, to check its plan",
    "include/truelog/tables/fingerprint.py": "applies a transform to empty frames, to hash its plan",
    "include/truelog/lineage/columns.py": "applies a transform to empty frames, to say where its columns come from",
    "include/truelog/kernel/bad_records.py": "runs the transform alone, to see on which records it fails",
    "include/truelog/tables/tracing/contributions.py": "totals by record, to find the records that explain a row",
}


def steps(root: Path, allowed: Collection[str]) -> list[str]:
    """Modules that transform events or total rows without permission, and unused permissions."""
    problem = "{} transforms events or totals rows; call Table.totals_of"
    found = {name: problem.format(line) for name, tree in modules(root, LIBRARY) for line in _steps(tree)}
    return unpermitted(found, allowed, "takes no such step")


def _steps(tree: ast.Module) -> Iterator[int]:
    """The lines that total rows or transform events. Spark's `F.transform` does neither."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_spark_function = ast.unparse(node.func.value) == "F"
            if (
                node.func.attr in {"totals", "added_up", "transform", "transformed", "contributions"}
                and not is_spark_function
            ):
                yield node.lineno


def applier_users(root: Path) -> list[str]:
    """Modules outside `streaming` that import the stream's `BatchApplier`."""
    return [
        f"{name} imports BatchApplier; batch work needs a BatchContext"
        for name, tree in modules(root, LIBRARY)
        if "BatchApplier" in _imported(tree) and not name.startswith("include/truelog/streaming/")
    ]


def _imported(tree: ast.Module) -> set[str]:
    return {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_events_become_states_in_one_place() -> None:
    assert steps(PROJECT, ALLOWED) == []


def test_batch_work_needs_no_applier() -> None:
    assert applier_users(PROJECT) == []


def test_a_second_way_is_found(tmp_path: Path) -> None:
    second = (
        "def rebuild(compiled, events):\n    rows = compiled.view.transform(events)\n    return compiled.totals(rows)\n"
    )
    array = "def halves(F, column):\n    return F.transform(column, half)\n"
    plant(tmp_path, {"include/truelog/batch/rebuild.py": second, "include/truelog/measures/measure.py": array})
    assert steps(tmp_path, {"include/truelog/measures/measure.py": "a reason of the past"}) == [
        "include/truelog/batch/rebuild.py:3 transforms events or totals rows; call Table.totals_of",
        "include/truelog/measures/measure.py is on the list, but takes no such step",
    ]


def test_an_applier_in_batch_work_is_found(tmp_path: Path) -> None:
    planted = "from truelog.kernel.apply_batch import BatchApplier\n"
    plant(tmp_path, {"include/truelog/streaming/stream.py": planted, "include/truelog/batch/rebuild.py": planted})
    [problem] = applier_users(tmp_path)
    assert problem == "include/truelog/batch/rebuild.py imports BatchApplier; batch work needs a BatchContext"
