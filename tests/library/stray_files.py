"""What people and their programs leave in a folder of declarations."""

import os
from pathlib import Path

HIDDEN = (".search.py", "._search.py", "_search.py", "__init__.py")  # they declare nothing
MISNAMED = (
    "search (copy).py",
    "search-2.py",
    "2nd.py",
    "größe.py",
    "a.b.py",
    f"{'a' * 201}.py",
    "caf\udce9.py",
    " .py",
)
REFUSED = (
    "broken",
    "dangling",
    "ends",
    "folder",
    "kills",
    "latin",
    "nul",
    "pipe",
    "raises",
)  # each is shown with its reason


def leave(folder: Path) -> None:
    """Leave one of each kind of file."""
    for name in (*HIDDEN, *MISNAMED):
        (folder / name).write_bytes(b"\0\5\26\7\0\2\0\0Mac OS X        ")
    (folder / ".#by_language.py").symlink_to("me@host.4711:1764000000")  # an editor's lock
    (folder / "search.py~").write_text("(")
    (folder / "dangling.py").symlink_to("nowhere")
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    (folder / "latin.py").write_bytes(b"'gr\xfc\xdfe'\n")
    texts = {
        "broken": "(",
        "nul": "\0",
        "ends": "import sys; sys.exit()",
        "kills": "import os; os._exit(0)",
        "raises": "raise ValueError('[/x] \\0 \\ud800')",
    }
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
