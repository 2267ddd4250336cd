"""Each kind of alert has its runbook, and each runbook its kind; both are in the table of docs/alerts.md."""

import re
from pathlib import Path

from tests.house.tree import PROJECT, plant, texts
from truelog.alerts.alert_kind import KINDS

TOLD = re.compile(r"^\| \[(\w+)\]\(runbooks/(\w+)\.md\) \| (\w+) \|", re.MULTILINE)
SAYS = ("\n1. ", "**Resolved**")


def wrong(root: Path, kinds: dict[str, str]) -> list[str]:
    """What is missing, too much, or says too little; kinds with the severity of each."""
    pages = {Path(name).stem: text for name, text in texts(root, "docs/runbooks/*.md")}
    told = {name: (page, severity) for name, page, severity in TOLD.findall((root / "docs/alerts.md").read_text())}
    return [
        *(f"{kind} has no page docs/runbooks/{kind}.md" for kind in sorted(kinds.keys() - pages.keys())),
        *(f"docs/runbooks/{page}.md is of no kind" for page in sorted(pages.keys() - kinds.keys())),
        *(
            f"docs/runbooks/{page}.md does not begin with its kind, tell a first step, and when it is resolved"
            for page, text in pages.items()
            if not (text.startswith(f"# `{page}`: ") and all(word in text for word in SAYS))
        ),
        *(f"docs/alerts.md does not tell of {kind}" for kind in sorted(kinds.keys() - told.keys())),
        *(
            f"docs/alerts.md is wrong about {kind}"
            for kind, known in sorted(told.items())
            if known != (kind, kinds.get(kind))
        ),
    ]


def test_every_kind_has_its_runbook_and_every_runbook_its_kind() -> None:
    assert wrong(PROJECT, {kind: str(each.severity) for kind, each in KINDS.items()}) == []


def test_every_kind_says_what_it_means_and_what_to_do_first() -> None:
    for kind, each in KINDS.items():
        assert "{subject}" in each.means, kind
        assert each.first.endswith((".", "?")), kind


def test_a_missing_page_is_seen(tmp_path: Path) -> None:
    page = "# `{}`: it\n\n1. Look.\n\n**Resolved** when it is.\n"
    table = "| [one](runbooks/one.md) | critical | |\n| [old](runbooks/old.md) | critical | |\n"
    planted = {"docs/alerts.md": table, "docs/runbooks/one.md": page.format("one"), "docs/runbooks/old.md": "# old\n"}
    assert wrong(plant(tmp_path, planted), {"one": "warning", "two": "critical"}) == [
        "two has no page docs/runbooks/two.md",
        "docs/runbooks/old.md is of no kind",
        "docs/runbooks/old.md does not begin with its kind, tell a first step, and when it is resolved",
        "docs/alerts.md does not tell of two",
        "docs/alerts.md is wrong about old",
        "docs/alerts.md is wrong about one",
    ]
