"""Paths and `make` targets in documents exist, and no file describes an installation that bypasses the lock.

A path is a link target, or a word in `code` that ends like a file or folder name or begins with a folder of the tree.
A path may omit its first folders (`views/page_views.py`) and contain `*`. If a path contains `<name>`, or the document
instructs the reader to write the file (Write `views/mine.py`), only the file's folder must exist. The rule skips
blocks of Python and paths that .gitignore lists.
"""

import fnmatch
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import PROJECT, files, plant, texts

DOCUMENTS = ("*.md", ":(exclude)tests/*")

CODE = re.compile(r"```(?:\w*)\n(.*?)```|`([^`\n]+)`", re.DOTALL)
PYTHON = re.compile(r"```python\n.*?```", re.DOTALL)
TO_WRITE = re.compile(r"\bWrite `([^`\s]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)")
ENDINGS = "py|md|yml|yaml|toml|txt|sql|xml|sh|json|cfg|properties|csv|gz|png"
PATH = re.compile(rf"(?:[\w.*<>-]+/)+[\w.*<>-]*|[\w*<>-]+\.(?:{ENDINGS})")
FILE_OR_FOLDER = re.compile(rf".*(?:/|\.(?:{ENDINGS}))")

# Such a command ignores the lock's override and installs pyspark-client, which overwrites PySpark's files.
PLAIN_INSTALL = re.compile(r"pip3?\s+install\b[^\n`]*?\s(?:-r|--requirement)[ =]*\S*requirements")


def missing_paths(root: Path) -> list[str]:
    """The paths in documents that do not exist."""
    existing = {str(path.relative_to(root)) for path in files(root)}
    existing |= {f"{folder}/" for name in existing for folder in map(str, Path(name).parents) if folder != "."}
    ignored = [line.strip() for line in (root / ".gitignore").read_text().splitlines() if line.strip()]
    return [
        f"{document}:{line} names {path}, which does not exist"
        for document, text in texts(root, *DOCUMENTS)
        for line, path in _paths(text, Path(document).parent)
        if FILE_OR_FOLDER.fullmatch(path) or f"{path.partition('/')[0]}/" in existing
        if not _exists(path, existing) and not any(path.startswith(each) for each in ignored)
    ]


def _paths(text: str, folder: Path) -> Iterator[tuple[int, str]]:
    """Yield each path and its line number. If the reader must write the file, yield only its folder."""
    text = PYTHON.sub(lambda block: "\n" * block.group().count("\n"), text)
    to_write = set(TO_WRITE.findall(text))
    for found in LINK.finditer(text):
        if "://" not in found[1] and not found[1].startswith("mailto:"):
            yield _line(text, found), str((folder / found[1]).as_posix())
    for code in CODE.finditer(text):
        for word in (code[1] or code[2]).split():
            bare = word.strip("\"'(),;:").removeprefix("./")
            if PATH.fullmatch(bare):
                yield _line(text, code), f"{Path(bare).parent}/" if bare in to_write else bare


def _line(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start()) + 1


def _exists(path: str, existing: set[str]) -> bool:
    """Whether the path of a file or folder ends with these segments."""
    parts = Path(path).parts
    while parts and "<" in parts[-1]:
        parts = parts[:-1]
        path = "/".join(parts) + "/"
    wanted = path.rstrip("/")
    names = [each.rstrip("/") for each in existing]
    return any(fnmatch.fnmatchcase(name, wanted) or fnmatch.fnmatchcase(name, f"*/{wanted}") for name in names)


def missing_targets(root: Path) -> list[str]:
    """The `make` targets in documents that are missing from the Makefile."""
    known = set(re.findall(r"^([a-z][\w-]*):", (root / "Makefile").read_text(), re.MULTILINE))
    return [
        f"{document}:{_line(text, code)} names `make {word}`, which the Makefile does not have"
        for document, text in texts(root, *DOCUMENTS)
        for code in CODE.finditer(text)
        for word in re.findall(r"\bmake ([a-z][\w-]*)", code[1] or code[2])
        if word not in known
    ]


def plain_installs(root: Path) -> list[str]:
    return [
        f"{name}:{number} bypasses the lock; use `make install`"
        for name, text in texts(root)
        for number, line in enumerate(text.splitlines(), 1)
        if PLAIN_INSTALL.search(line)
    ]


def test_every_path_in_documents_exists() -> None:
    assert missing_paths(PROJECT) == []


def test_every_make_target_in_documents_exists() -> None:
    assert missing_targets(PROJECT) == []


def test_no_file_bypasses_the_lock() -> None:
    assert plain_installs(PROJECT) == []


GUIDE = """# A guide
Edit `spark_apps/views/` and `views/page_views.py`, add `spark_apps/views/<name>.py`, see [the scope](000-scope.md).
Then `.venv/bin/truelog up`, look at `build/bench.json`, `include/*/wait.py` and [the site](https://example.org/a/b.py).
Ask 1/2, `topic 0:1200`, `POST /events`, `application/json`, `a != b`.

Write `spark_apps/views/mine.py`, then read `spark_apps/views/mine.py`. Write `missing/mine.py`.

Old: `spark_apps/jobs/`, `docs/gone`, `docs/gone.md`, `old.py`, [old](old.md), `gone/<name>.py`.
```
make test && make dance
cat docs/also-gone.md
```
```python
from pyspark.sql import functions
```
"""


def test_planted_missing_paths_are_found(tmp_path: Path) -> None:
    existing = ("spark_apps/views/page_views.py", "docs/000-scope.md", "include/runtime/wait.py")
    planted = {"docs/guide.md": GUIDE, ".gitignore": ".venv/\nbuild/\n", "Makefile": "test: install\n\tpytest\n"}
    plant(tmp_path, planted | dict.fromkeys(existing, ""))

    assert {problem.split(" ")[2].rstrip(",") for problem in missing_paths(tmp_path)} == {
        "spark_apps/jobs/",
        "docs/gone.md",
        "old.py",
        "docs/old.md",
        "gone/<name>.py",
        "docs/also-gone.md",
        "docs/gone",
        "missing/",
    }
    assert missing_targets(tmp_path) == ["docs/guide.md:9 names `make dance`, which the Makefile does not have"]


def test_planted_installations_are_found(tmp_path: Path) -> None:
    lock = "requirements.txt"
    planted = {
        "README.md": f"`make install`. A plain `pip install -r` would break it.\nDo `pip install -q -r {lock}`.\n",
        "ci": f"uv pip sync {lock}\nuv pip install --requirement={lock}\n",
    }
    assert [problem.split()[0] for problem in plain_installs(plant(tmp_path, planted))] == ["README.md:2", "ci:2"]
