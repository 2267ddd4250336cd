"""Every alert kind has a runbook, every runbook has an alert kind, and the table in docs/alerts.md lists them all."""

import re
from collections.abc import Mapping
from pathlib import Path

from tests.house.tree import PROJECT, plant, texts
from truelog.alerts.kind import KINDS

ROW = re.compile(r"^\| \[(\w+)\]\(runbooks/(\w+)\.md\) \| (\w+) \|", re.MULTILINE)
PARTS = ("\n1. ", "**Resolved**")


def wrong(root: Path, kinds: Mapping[str, str]) -> list[str]:
    """Every missing, superfluous or incomplete page and row. `kinds` maps each kind to its severity."""
    pages = {Path(name).stem: text for name, text in texts(root, "docs/runbooks/*.md")}
    rows = {name: (page, severity) for name, page, severity in ROW.findall((root / "docs/alerts.md").read_text())}
    return [
        *(f"{kind} has no page docs/runbooks/{kind}.md" for kind in sorted(kinds.keys() - pages.keys())),
        *(f"docs/runbooks/{page}.md belongs to no kind" for page in sorted(pages.keys() - kinds.keys())),
        *(
            f"docs/runbooks/{page}.md lacks its kind in the title, a first step, or when the alert is resolved"
            for page, text in pages.items()
            if not (text.startswith(f"# `{page}`: ") and all(part in text for part in PARTS))
        ),
        *(f"docs/alerts.md has no row for {kind}" for kind in sorted(kinds.keys() - rows.keys())),
        *(
            f"docs/alerts.md is wrong about {kind}"
            for kind, known in sorted(rows.items())
            if known != (kind, kinds.get(kind))
        ),
    ]


def test_every_kind_has_its_runbook_and_every_runbook_its_kind() -> None:
    assert wrong(PROJECT, {kind: str(each.severity) for kind, each in KINDS.items()}) == []


def test_every_kind_says_what_it_means_and_what_to_do_first() -> None:
    for kind, each in KINDS.items():
        assert "{subject}" in each.meaning, kind
        assert each.first_step.endswith((".", "?")), kind
        assert "{" not in each.first_step, f"{kind}: receivers get the first step as it is"


def test_a_missing_page_is_seen(tmp_path: Path) -> None:
    page = "# `{}`: it\n\n1. Look.\n\n**Resolved** when it is.\n"
    table = "| [one](runbooks/one.md) | critical | |\n| [old](runbooks/old.md) | critical | |\n"
    planted = {
        "docs/alerts.md": table,
        "docs/runbooks/one.md": page.format("one"),
        "docs/runbooks/old.md": "# old\n",
    }
    assert wrong(plant(tmp_path, planted), {"one": "warning", "two": "critical"}) == [
        "two has no page docs/runbooks/two.md",
        "docs/runbooks/old.md belongs to no kind",
        "docs/runbooks/old.md lacks its kind in the title, a first step, or when the alert is resolved",
        "docs/alerts.md has no row for two",
        "docs/alerts.md is wrong about old",
        "docs/alerts.md is wrong about one",
    ]
