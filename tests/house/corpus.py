"""The corpus: every text in the project that people read, as passages with their locations.

The corpus contains documents, docstrings, comments, and strings of more than three words. A passage is a paragraph, a
list item, a table cell, a docstring, a block of comments or a string. Code is left out.
"""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.house.tree import texts

# Third-party licences and schemas, generated lock files, and the list of habits itself.
EXCLUDED = (
    *("LICENSE", "tests/library/runtime/compose_spec/", "requirements", "tests/house/prose.py"),
    "tests/library/reports/contracts/asyncapi_spec/",
    *("tests/house/test_prose.py", "docs/style.md"),  # these two files show what not to write
)
NAMES = {"Makefile": "#", ".ci/run": "#"}  # files without a suffix, and how their comments begin

_FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`[^`\n]+`")
_BLOCK = re.compile(r"^\s*(?:[-*]|\d+\.)\s+|^#+\s+|^>\s?")
_NOTE = re.compile(r"^#+:?\s*(?:(?:noqa|type: ignore)[^ ]*(?: [A-Z]+\d+,?)*)?\s*")
_SQL = re.compile(
    r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP|GRANT|TRUNCATE|FROM|WHERE|COPY|SET|ON|t\.id)\b"
)
_MARKS = {".sql": "--", ".js": "//", ".yml": "#", ".yaml": "#", ".toml": "#", ".properties": "#"}
_ANNOTATION = re.compile(r"^\s*(?:- )?(?:summary|description|title):\s*(?![|>])(.*)")
_CSS = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')


class Form(Enum):
    """The kind of a passage. Only TEXT is expected to consist of whole sentences."""

    TEXT = "text"
    CELL = "cell"
    STRING = "string"


@dataclass(frozen=True)
class Passage:
    """A run of prose with its line breaks, and the place where it begins."""

    path: str
    line: int
    text: str
    form: Form = Form.TEXT

    def without_code(self) -> str:
        """The text, with an x in place of each character of inline code."""
        return _INLINE.sub(lambda code: "x" * len(code.group()), self.text)


_Found = tuple[int, str, Form]
_Reader = Callable[[str], Iterator[_Found]]


def passages(root: Path, *patterns: str) -> Iterator[Passage]:
    """Yield the passages of the files whose paths match a pattern, or of all files if there are no patterns."""
    for path, text in texts(root, *patterns):
        read = _READERS.get(Path(path).suffix) or _BY_NAME.get(path)
        if read and not path.startswith(EXCLUDED):
            for line, found, form in read(text):
                yield Passage(path, line, found, form)


def _markdown(text: str) -> Iterator[_Found]:
    plain = _FENCED.sub(lambda block: "\n" * block.group().count("\n"), text)
    start, block = 1, ""
    for number, line in enumerate([*plain.splitlines(), ""], 1):
        is_table = line.lstrip().startswith("|")
        if block and (not line.strip() or is_table or _BLOCK.match(line)):
            yield start, block, Form.TEXT
            block = ""
        if is_table:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            yield from ((number, cell, Form.CELL) for cell in cells if cell.strip(":- "))
        elif line.strip():
            start = start if block else number
            block = f"{block}\n{line}" if block else _BLOCK.sub("", line)


def _python(text: str) -> Iterator[_Found]:
    yield from _comments_of_python(text)
    tree = ast.parse(text)
    docstrings = _docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words, form = node.value, Form.TEXT if id(node) in docstrings else Form.STRING
        elif isinstance(node, ast.JoinedStr):
            words = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            form = Form.STRING
        else:
            continue
        if len(words.split()) > 3 and (form is Form.TEXT or not _SQL.match(words)):
            yield node.lineno, words, form


def _docstrings(tree: ast.Module) -> set[int]:
    """The `id` of each docstring node."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    first = [node.body[0] for node in ast.walk(tree) if isinstance(node, owners) and node.body]
    return {id(each.value) for each in first if isinstance(each, ast.Expr)}


def _comments_of_python(text: str) -> Iterator[_Found]:
    """Yield the comments. Consecutive lines that contain only comments are one passage."""
    lines = text.splitlines()
    found: list[tuple[int, str, bool]] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            whole = lines[token.start[0] - 1].lstrip().startswith("#")
            found.append((token.start[0], _NOTE.sub("", token.string), whole))
    yield from _joined(found)


def _joined(comments: list[tuple[int, str, bool]]) -> Iterator[_Found]:
    start, block, last = 0, "", -1
    for number, words, whole in comments:
        if block and whole and number == last + 1:
            block = f"{block}\n{words}"
        else:
            if block.strip():
                yield start, block, Form.TEXT
            start, block = number, words
        last = number if whole else -1
    if block.strip():
        yield start, block, Form.TEXT


def _commented(mark: str, *, strings: bool = False) -> _Reader:
    comment = re.compile(rf"(?<![\w:'\"]){re.escape(mark)}\s?(.*)")

    def read(text: str) -> Iterator[_Found]:
        comments = []
        for number, line in enumerate(text.splitlines(), 1):
            code, found = line, comment.search(line)
            if found:
                comments.append((number, found[1], line.lstrip().startswith(mark)))
                code = line[: found.start()]
            if annotation := _ANNOTATION.match(code):
                yield number, annotation[1].strip("\"'"), Form.STRING
            for each in _STRING.finditer(code) if strings else ():
                words = each[1] or each[2] or ""
                if len(words.split()) > 2:
                    yield number, words, Form.STRING
        yield from _joined(comments)

    return read


def _css(text: str) -> Iterator[_Found]:
    for comment in _CSS.finditer(text):
        yield text.count("\n", 0, comment.start()) + 1, comment[1].strip(), Form.TEXT


_READERS: dict[str, _Reader] = {
    ".md": _markdown,
    ".py": _python,
    ".css": _css,
    **{suffix: _commented(mark, strings=suffix == ".js") for suffix, mark in _MARKS.items()},
}
_BY_NAME = {name: _commented(mark) for name, mark in NAMES.items()}
