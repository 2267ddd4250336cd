"""docs/README.md links each page of docs/, and leads to every decision and every runbook."""

import re
from pathlib import Path

from tests.house.tree import PROJECT, files, plant

INDEX = "docs/README.md"
LINK = re.compile(r"\]\(([^)#\s]+\.md)\)")


def unlinked(root: Path) -> list[str]:
    """Pages in docs/ itself without a link from the index, and further pages that no path of links reaches."""
    index = root / INDEX
    pages = {*files(root, "docs/*.md")}
    direct = _links(index)
    reached, found = set[Path](), {index}
    while found:
        reached |= found
        found = {target for page in found & pages for target in _links(page)} - reached
    return [
        f"{path.relative_to(root)} is not linked from {INDEX}"
        for path in sorted(pages - {index})
        if path not in (direct if path.parent == index.parent else reached)
    ]


def _links(page: Path) -> set[Path]:
    return {page.parent / target for target in LINK.findall(page.read_text())}


def test_the_index_links_every_page() -> None:
    assert unlinked(PROJECT) == []


def test_planted_pages_without_a_link_are_found(tmp_path: Path) -> None:
    planted = {
        INDEX: "- [Alerts](alerts.md)\n- [Decisions](decisions/README.md)\n",
        "docs/alerts.md": "[down](runbooks/down.md), [lag](lag.md)\n",
        "docs/lag.md": "",
        "docs/runbooks/down.md": "",
        "docs/runbooks/dead.md": "[down](down.md)\n",
        "docs/decisions/README.md": "[000](000-a.md)\n",
        "docs/decisions/000-a.md": "",
        "docs/decisions/001-b.md": "",
    }
    assert [problem.split()[0] for problem in unlinked(plant(tmp_path, planted))] == [
        "docs/decisions/001-b.md",
        "docs/lag.md",
        "docs/runbooks/dead.md",
    ]
