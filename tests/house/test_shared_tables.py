"""Each table that a stream and a comparison both read is checked independently, or it decides no row.

If both sides take something from one table, a wrong row there is wrong on both sides, and they stay equal.
"""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from tests.house.tree import PROJECT, imports, modules, plant

LIBRARY = "include/truelog"
STREAM, BATCH = "truelog.streaming.stream", "truelog.reconcile.reconcile"
READ = re.compile(r"\b(?:FROM|JOIN|USING)\s+truelog\.(\w+)")
OF_PROCESSES = "decides no row: which processes run, and what they show"
REGISTRY = "tests/library/control/test_event_registry.py::test_versions_that_differ_from_the_bucket_are_refused"
ERASURES = "decides no row: from where a stream reads the log, or else the archive"
CUT = "tests/library/control/test_event_registry.py::test_a_cut_that_was_changed_by_hand_is_refused"
POSITION = "tests/library/reconcile/comparison/test_compare.py::test_a_wrong_position_is_a_difference"

# By table or SQL view: the test of an independent check, or why no row depends on it.
CHECKED = {
    "application": OF_PROCESSES,
    "application_status": OF_PROCESSES,
    "batch_layer": OF_PROCESSES,
    "clock": "decides no row: `present` and `status` show it to readers",
    "clock_hold": OF_PROCESSES,
    "command_fold": "decides no row: from which topic the states of commands are read",
    "command_position": "decides no row: how far the states of commands are read",
    "deployed": OF_PROCESSES,
    "erasure": ERASURES,
    "erasure_count": "decides no row: which partials are used, or else the archive",
    "erasure_end": ERASURES,
    "erasure_subject": "decides no row: which archived records are rewritten, and their bytes show that",
    "event_cut": CUT,
    "event_type": "decides no row: settings of topics and expected quality",
    "event_version": REGISTRY,
    "exclusion": "tests/library/kernel/test_exclusions.py::test_a_record_left_out_without_reason_is_named_and_counted",
    "failed_group": "decides no row: a rebuild finds the groups itself, and the alert reads the table",
    "former": OF_PROCESSES,
    "held": "decides no row: whether readers get the rows or the reason",
    "lease": OF_PROCESSES,
    "log_cut": "decides no row: from where a stream reads the log, or else the archive",
    "log_day": "decides no row: a partial states the records that it covers",
    "merge_tally": "decides no row: after how many exclusions a view stops",
    "operation": OF_PROCESSES,
    "outbox": "decides no row: what is published of a view",
    "output_step": "decides no row: what is published of a view",
    "oversized_group": "decides no row: the fold counts the inputs again, and the alert reads the table",
    "output": "decides no row: which rows of the outbox are published",
    "position": POSITION,
    "predecessor": OF_PROCESSES,
    "standing": OF_PROCESSES,
    "tick": "tests/library/reconcile/comparison/test_clock_check.py::test_rows_that_a_wrong_tick_has_dropped",
    "version_share": OF_PROCESSES,
    "view": "tests/library/tables/test_deploy.py::test_a_table_of_other_code_is_refused",
    "view_position": POSITION,
    "wrong_clock": "decides no row: it explains differences",
}


def read_by_both(root: Path) -> set[str]:
    """The tables that modules name which a stream needs, and modules which a comparison needs."""
    known = {_module(name): tree for name, tree in modules(root, f"{LIBRARY}/*.py")}
    stream, batch = (_tables(known, _needed(known, start)) for start in (STREAM, BATCH))
    return stream & batch


def _module(name: str) -> str:
    return "truelog." + name.removeprefix(f"{LIBRARY}/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _needed(known: dict[str, ast.Module], start: str) -> set[str]:
    needed, left = set[str](), [start]
    while left:
        module = left.pop()
        if module in known and module not in needed:
            needed.add(module)
            left += [each for _, name in imports(known[module]) for each in (name, name.rpartition(".")[0])]
    return needed


def _tables(known: dict[str, ast.Module], names: Iterable[str]) -> set[str]:
    texts = (
        node.value
        for name in names
        for node in ast.walk(known[name])
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return {table for text in texts for table in READ.findall(text)}


def missing_tests(root: Path) -> list[str]:
    named = [each.split("::") for each in CHECKED.values() if "::" in each]
    return [f"{path}::{test}" for path, test in named if f"\ndef {test}(" not in (root / path).read_text()]


def test_each_shared_table_is_checked_independently() -> None:
    assert read_by_both(PROJECT) == CHECKED.keys()
    assert missing_tests(PROJECT) == []
    assert all("::" in each or each.startswith("decides no row: ") for each in CHECKED.values())


def test_a_new_shared_table_is_seen(tmp_path: Path) -> None:
    shared = 'QUERY = "SELECT FROM truelog.guess JOIN truelog.hint"\n'
    planted = {
        "streaming/stream.py": "from truelog.kernel import merge\n",
        "kernel/merge.py": shared,
        "kernel/own.py": 'QUERY = "SELECT FROM truelog.own"\n',
        "reconcile/reconcile.py": 'from truelog.kernel.own import QUERY\nOTHER = "DELETE FROM truelog.hint"\n',
    }
    plant(tmp_path, {f"{LIBRARY}/{name}": text for name, text in planted.items()})
    assert read_by_both(tmp_path) == {"hint"}
