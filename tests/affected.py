"""Runs the test files that a change can reach: by imports, by fixtures, and by the rules below.

    python -m tests.affected [--base COMMIT] [--why] [--list]

The change is what differs from the upstream branch, or from HEAD if there is none, with new files. A test that runs an
application as a process reaches the application's modules by the name of its script. The house tests always run. The
whole suite remains the gate, because no graph shows every influence of a file.
"""

import argparse
import ast
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tests.house.tree import PROJECT, files, git
from tests.import_graph import ImportGraph, read_use

# As in `make test`.
MARKERS = "not nightly"
THREE_FILES = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
HOUSE = "tests/house/"
_DECLARED = PROJECT.glob("include/truelog/services/*/declaration.py")
# Edges that no import shows: what a file or a fixture reads, loads or starts by itself.
LOADS = {
    "tests/dags/conftest.py::dags": ("dags/",),
    "tests/pages/conftest.py::pages": ("plugins/pages_plugin.py", "include/pages/"),
    "tests/pages/conftest.py::planned": ("dags/",),
    "tests/pages/conftest.py::chromium": ("tests/pages/pictures/", "tests/pages/vendored/"),
    "tests/scenes/airflow_client.py": ("dags/", "plugins/", "include/pages/"),
    "tests/scenes/conftest.py::SCENE_VIEWS": ("tests/scenes/views/",),
    "include/truelog/commands/catalogue.py": ("include/commands/",),
    "include/pages/files.py": ("include/pages/static/",),
    "include/runtime/jars.py": ("include/runtime/ivy.xml",),
    "include/runtime/kafka.py": ("include/runtime/kafka-log4j2.properties",),
    "include/truelog/services/registry.py": tuple(sorted(str(each.relative_to(PROJECT)) for each in _DECLARED)),
    "include/truelog/spark/submit.py": ("include/truelog/spark/spark-log4j2.properties",),
    "include/truelog/measures/registry.py": ("include/truelog/measures/*.sql",),
    "include/truelog/tables/staging/local_task.py": ("include/truelog/tables/staging/LocalTask.java",),
    "include/truelog/text/characters.py": ("include/truelog/text/characters.txt",),
    "include/truelog/text/functions.py": ("include/truelog/text/words.sql",),
    "include/truelog/storage/migration.py": ("include/truelog/storage/sql/",),
    "tests/laws/test_golden_certificates.py": ("tests/laws/golden/", "tests/laws/fingerprints.json"),
    "tests/library/patterns/test_rule_shipped.py": ("include/rules/",),
    "tests/laws/test_golden_digest.py": ("tests/laws/golden/",),
    "tests/library/runtime/test_runtime_compose.py": ("tests/library/runtime/compose_spec/",),
    "tests/library/runtime/helm.py": (
        "deploy/helm/",
        "docs/production.md",
        "tests/library/runtime/kubernetes_schemas/",
    ),
    "tests/library/standards.py": ("tests/library/reports/contracts/asyncapi_spec/",),
    "tests/library/runtime/test_made_files.py": (".devcontainer/", "deploy/helm/", "docs/monitoring/prometheus.yml"),
    "tests/library/tables/superset_bundle.py": ("docs/monitoring/superset/",),
    "tests/library/tables/test_deploy_dashboard.py": ("docs/monitoring/",),
    "tests/library/services/test_registry.py": ("include/truelog/services/", "include/runtime/", "docker-compose.yml"),
}
# Changes that any test may notice. Documents and configuration files that are not listed here or above are read only by
# the house tests.
EVERYTHING = ("pyproject.toml", "requirements.txt")
VIEWS, EVENTS = "spark_apps/views/", "include/events/"
SCHEMA_TESTS = "tests/library/schema/"


@dataclass(frozen=True)
class Selection:
    """The test files to run, each with a chain to a changed file, and the views whose laws to run."""

    chains: dict[str, list[str]]
    views: tuple[str, ...]

    @property
    def commands(self) -> list[list[str]]:
        """The arguments of pytest, for one run or two. The laws of a changed view run with their nightly cases."""
        found = [["-m", MARKERS, HOUSE, *(file for file in self.chains if not file.startswith(HOUSE))]]
        if self.views:
            found.append([*self._laws, "-k", " or ".join(self.views)])
        return found

    @property
    def _laws(self) -> list[str]:
        paths = files(PROJECT, "tests/laws/test_*.py") if self.views else []
        return [str(path.relative_to(PROJECT)) for path in paths]


def select(root: Path, changed: set[str]) -> Selection:
    graph = ImportGraph(root, tuple(sorted(name for name in changed if not (root / name).is_file())))
    for node, needed in LOADS.items():
        for each in needed:
            graph.link(node, each)
    events = {name for name in changed if name.startswith(EVENTS)}
    views = _views(root, changed, {PurePosixPath(event).stem for event in events})
    for name in views:
        graph.link(f"tests/views/test_{name}.py", f"{VIEWS}{name}.py")
        graph.edges[f"{VIEWS}{name}.py"] |= events
    for test in graph.tests:
        if test.startswith(SCHEMA_TESTS):
            graph.edges[test] |= events
        graph.edges[test] |= changed & {*EVERYTHING}
    paths = graph.paths_from(changed)
    return Selection({test: paths[test] for test in sorted(graph.tests) if test in paths}, views)


def _views(root: Path, changed: set[str], events: set[str]) -> tuple[str, ...]:
    """The views that have changed, or that read one of these event types."""
    return tuple(
        path.stem
        for path in files(root, f"{VIEWS}*.py")
        if str(path.relative_to(root)) in changed or events & read_use(ast.parse(path.read_text())).strings
    )


def changes(root: Path, base: str | None) -> tuple[str, set[str]]:
    """The commit that the tree is compared with, and the files that differ from it or are new."""
    if base is None:
        upstream = git(root, "rev-parse", "--verify", "--quiet", "@{upstream}", check=False).strip()
        base = git(root, "merge-base", "HEAD", upstream).strip() if upstream else "HEAD"
    listed = git(root, "diff", "--name-only", "--no-renames", "-z", base)
    listed += git(root, "ls-files", "-z", "--others", "--exclude-standard")
    return base, {name for name in listed.split("\0") if name}


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.affected")
    parser.add_argument("--base", metavar="COMMIT", help="compare with this commit")
    parser.add_argument("--why", action="store_true", help="print how each file depends on the change")
    parser.add_argument("--list", action="store_true", help="only print the files")
    given = parser.parse_args(words)
    base, changed = changes(PROJECT, given.base)
    selection = select(PROJECT, changed)
    out = sys.stdout
    out.write(f"{len(changed)} files differ from {base[:12]}; they reach {len(selection.chains)} test files\n")
    for file, chain in selection.chains.items():
        out.write(f"  {file}" + (f": {' < '.join(chain[1:])}" if given.why else "") + "\n")
    if selection.views:
        out.write(f"  the laws of {', '.join(selection.views)}\n")
    if any(name.startswith("include/pages/") for name in changed):
        out.write("  and, if Chromium is installed, `make browser`\n")
    if any(name.startswith("deploy/") for name in changed):
        out.write("  and `make chart`\n")
    out.flush()
    if given.list:
        return 0
    pytest = [sys.executable, "-m", "pytest", *THREE_FILES]
    return max(subprocess.run([*pytest, *each], cwd=PROJECT, check=False).returncode for each in selection.commands)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
