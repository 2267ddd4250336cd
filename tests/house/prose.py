"""Prose of the project, and what a word list finds wrong with it: `python -m tests.house.prose [PATH…]`.

The corpus is every text that people read: documents, docstrings, comments, and strings of more than three words.
`docs/style.md` explains the rules.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.house.tree import PROJECT, texts

# Not prose of this project: licences and schemas of others, and records of the past.
EXCLUDED = ("LICENSE", "tests/library/runtime/compose_spec/", "requirements", "tests/house/prose.py")
SHOWN_AS_EXAMPLES = ("docs/style.md",)  # its left column shows what not to write

HABITS = {
    r"(?:^|[.:;!?] )Of (?:the|each|all|every|its|their|those|these|what|which|an?|any|one)\b": "name the subject first",
    r"\btold\b": "say who shows, reports or sends what",
    r"\bstands?\b(?! (?:by|in) (?:for|the way))": "use 'is', 'is at' or the state's name",
    r"\bnobody\b": "use 'no one' only for people; else name what is missing",
    r"\bsomebody\b": "name the person or the process",
    r"\bcom(?:es|e|ing) to\b": "use 'equals', 'reaches' or 'amounts to'",
    r"\b(?:[Tt]he )?one (?:that|who|which|whose|of which)\b": "repeat the noun",
    r"\b(?:that|those|these) (?:which|who|whom|whose)\b|\bthose that\b": "repeat the noun",
    r"\bof late\b": "use 'recently'",
    r"\bis no good\b|\bare no good\b": "use 'invalid'",
    r"\bset aside\b|\bsets aside\b": "use 'skipped' or 'excluded'",
    r"\bwish(?:es|ed)?\b": "use 'request'",
    r"\bbefall": "use 'happen'",
    r"\banew\b": "use 'again'",
    r"\bof which\b|\bof whom\b": "split the sentence",
    r"\b(?:any|no) more\b(?! than)": "use 'no longer'",
    r"\bwhat (?:came|becomes|comes|became) of\b": "use 'result' or 'outcome'",
    r"\bwhoever\b": "name the person",
    r"\ball the same\b|\bas well\b\.": "leave it out, or use 'also'",
    r"\bhow far it is\b": "use 'progress'",
}
_HABITS = {re.compile(pattern): cure for pattern, cure in HABITS.items()}
_CODE = re.compile(r"```.*?```", re.DOTALL)
_COMMENTS = {".sql": re.compile(r"--\s?(.*)"), ".js": re.compile(r"//\s?(.*)"), ".yml": re.compile(r"(?<!\S)#\s?(.*)")}
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')


@dataclass(frozen=True)
class Passage:
    """A run of prose, and where it begins."""

    path: str
    line: int
    text: str


def passages(root: Path, *patterns: str) -> Iterator[Passage]:
    for path, text in texts(root, *patterns):
        if not path.startswith(EXCLUDED) and (read := _READERS.get(Path(path).suffix)):
            for line, found in read(text):
                yield Passage(path, line, found)


def _markdown(text: str) -> Iterator[tuple[int, str]]:
    plain = _CODE.sub(lambda block: "\n" * block.group().count("\n"), text)
    line = 1
    for paragraph in re.split(r"(\n\s*\n)", plain):
        if paragraph.strip():
            yield line, re.sub(r"\s*\n\s*", " ", paragraph.strip())
        line += paragraph.count("\n")


def _python(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], re.sub(r"^#+:?\s*(?:noqa.*|type: ignore.*)?", "", token.string)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) > 3:
            yield node.lineno, re.sub(r"\s*\n\s*", " ", node.value.strip())
        elif isinstance(node, ast.JoinedStr):
            words = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            if len(words.split()) > 3:
                yield node.lineno, re.sub(r"\s*\n\s*", " ", words.strip())


def _commented(suffix: str, *, strings: bool = False) -> "_Reader":
    def read(text: str) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(text.splitlines(), 1):
            if found := _COMMENTS[suffix].search(line):
                yield number, found[1]
            for each in _STRING.finditer(line) if strings else ():
                words = each[1] or each[2] or ""
                if len(words.split()) > 2:
                    yield number, words

    return read


_Reader = Callable[[str], Iterator[tuple[int, str]]]
_READERS = {
    ".md": _markdown,
    ".py": _python,
    ".sql": _commented(".sql"),
    ".js": _commented(".js", strings=True),
    ".yml": _commented(".yml"),
}


def problems(root: Path, *patterns: str) -> list[str]:
    """Where the word list finds a habit, with its cure; a string and the f-string around it are one place."""
    found = {
        (passage.path, passage.line, match.group().strip(" .:;")): cure
        for passage in passages(root, *patterns)
        if passage.path not in SHOWN_AS_EXAMPLES
        for pattern, cure in _HABITS.items()
        for match in pattern.finditer(passage.text)
    }
    return [f"{path}:{line} {words!r}: {cure}" for (path, line, words), cure in sorted(found.items())]


if __name__ == "__main__":
    wrong = problems(PROJECT, *sys.argv[1:])
    sys.stdout.write("".join(f"{each}\n" for each in wrong) + f"{len(wrong)} habits found\n")
    sys.exit(bool(wrong))
