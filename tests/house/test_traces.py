"""No file mentions a package registry or a folder of a particular machine.

This file builds the forbidden words from parts, so that it does not contain them itself.
"""

import re
from pathlib import Path

from tests.house.tree import PROJECT, plant, texts

HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("repo1", "maven", "org"),
        ("repo", "maven", "apache", "org"),
        ("registry", "npmjs", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("deb", "debian", "org"),
        ("conda", "anaconda", "org"),
    )
)
FOLDERS = tuple(f"/{name}/" for name in ("work", "root", "tmp", "home", "Users", "mnt"))

# A machine's folder is an absolute path, so no character of a longer path or an address may precede it.
TRACE = re.compile("|".join([re.escape(host) for host in HOSTS] + [rf"(?<![\w.~$}}>*/-]){f}(?=\w)" for f in FOLDERS]))


def traces(root: Path) -> list[str]:
    return [
        f"{name}:{number} names {found.group()}"
        for name, text in texts(root)
        for number, line in enumerate(text.splitlines(), 1)
        if (found := TRACE.search(line))
    ]


def test_no_file_names_a_registry_or_a_folder_of_one_machine() -> None:
    assert traces(PROJECT) == []


def test_planted_traces_are_found(tmp_path: Path) -> None:
    host, folder = HOSTS[0], FOLDERS[0]
    planted = {
        "requirements.txt": f"--index-url https://{host}/simple\nfine==1\n",
        "docs/guide.md": f"run `cd {folder}main`\n",
        "include/code.py": f'FINE = "build{folder}x", "$HOME{folder}y", "~{folder}z"\nBAD = "{folder}w"\n',
    }
    plant(tmp_path, planted)
    assert [problem.split()[0] for problem in traces(tmp_path)] == [
        "docs/guide.md:1",
        "include/code.py:2",
        "requirements.txt:1",
    ]
