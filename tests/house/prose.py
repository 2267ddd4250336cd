"""Find habits of translated English with a word list, or draw random sentences for a reader to judge.

    python -m tests.house.prose [PATTERN…]                   print every habit with its cure; exit code 1 if any exist
    python -m tests.house.prose --sample 100 --seed N [PATTERN…]

`docs/style.md` explains the rules.
"""

import argparse
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.house.corpus import Form, passages
from tests.house.tree import PROJECT

HABITS = {
    r"(?:^|[.:;!?]\s)Of (?:the|each|all|every|its|their|th[eo]se|what|which|an?|any|one)\b": "name the subject first",
    r"\btold\b": "say who shows, reports or sends what",
    r"\bstands?\b(?! (?:by|in) (?:for|the way))": "use 'is', 'is at' or the state's name",
    r"\bnobody\b": "use 'no one' only for people; else name what is missing",
    r"\bsomebody\b": "name the person or the process",
    r"\bcom(?:es|e|ing)\sto\b": "use 'equals', 'reaches' or 'amounts to'",
    r"\b(?:[Tt]he\s)?one\s(?:that|who|which|whose|of\swhich)\b": "repeat the noun",
    r"\b(?:that|those|these)\s(?:which|who|whom|whose)\b|\bthose\sthat\b": "repeat the noun",
    r"\bof\slate\b": "use 'recently'",
    r"\b(?:is|are)\sno\sgood\b": "use 'invalid'",
    r"\bsets?\saside\b": "use 'skipped' or 'excluded'",
    r"\bwish(?:es|ed)?\b": "use 'request'",
    r"\bbefall": "use 'happen'",
    r"\banew\b": "use 'again'",
    r"\bof\s(?:which|whom)\b": "split the sentence",
    r"\b(?:any|no)\smore\b(?!\sthan)": "use 'no longer'",
    r"\bwhat\s(?:came|becomes|comes|became)\sof\b": "use 'result' or 'outcome'",
    r"\bwhoever\b": "name the person",
    r"\ball\sthe\ssame\b|\bas\swell\b\.": "leave it out, or use 'also'",
    r"\bhow\sfar\sit\sis\b": "use 'progress'",
    # "There is no …" is plain English.
    r"(?<!here\s)\b(?:is|are|was|were)\s(?:none\b|no\s(?!(?:good|longer|more)\b)\w+)": "use 'is not a', or 'does not'",
    r"\b(?:archive|bucket|database|file|log|table)\shas(?:\s(?:all|every|everything|them)\b|[.,;:]|"
    r"\s(?!(?:lost|\w+ed)\b)(?:\w+\s){0,2}(?:events|records|rows|versions)\b)": "use 'contains'",
    r"\bof\s(?:(?!of\b)[\w'-]+\s){1,3}of\s(?:(?!of\b)[\w'-]+\s){1,3}of\b": "split the chain of 'of'",
    r"\b(?:after|before|by|for|from|in|of|on|with)\s(?:each|others)(?=[.,;:]|$)": "repeat the noun",
}
_HABITS = {re.compile(pattern): cure for pattern, cure in HABITS.items()}
_LEAST_WORDS = 5  # in a sentence that a reader can judge
# A sentence ends at a final mark before a capital letter, at an empty line, or before a list item.
_END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[A-Z`\"(*])|\n[ ]*\n\s*(?:Raises:\s*)?|\n[ ]*(?:[-*]|\d+\.)[ ]+")
_SENTENCE = re.compile(r"[A-Z`\"(*][^|]*[.!?][\"')*]*")


def problems(root: Path, *patterns: str) -> list[str]:
    """Each habit with its place and its cure. A string and the f-string that contains it count as one place."""
    found = {
        (passage.path, passage.line + passage.text.count("\n", 0, match.start()), _plain(match.group())): cure
        for passage in passages(root, *patterns)
        for pattern, cure in _HABITS.items()
        for match in pattern.finditer(passage.without_code())
    }
    return [f"{path}:{line} {words!r}: {cure}" for (path, line, words), cure in sorted(found.items())]


def _plain(words: str) -> str:
    return " ".join(words.strip(" .:;!?\n").split())


def sentences(root: Path, *patterns: str) -> Iterator[str]:
    """Yield whole sentences, each with its place, but no fragments, tables, code or test data."""
    for passage in passages(root, *patterns):
        if passage.form is Form.CELL or (passage.form is Form.STRING and passage.path.startswith("tests/")):
            continue
        start = 0
        for part in _END.split(passage.text):
            at = passage.text.index(part, start)
            start = at + len(part)
            words = " ".join(part.split())
            if len(words.split()) >= _LEAST_WORDS and _SENTENCE.fullmatch(words):
                yield f"{passage.path}:{passage.line + passage.text.count(chr(10), 0, at)} {words}"


def sample(root: Path, patterns: Sequence[str], *, number: int, seed: int) -> list[str]:
    """Draw `number` different sentences. The same seed and tree always give the same sentences."""
    corpus = sorted(set(sentences(root, *patterns)))
    return random.Random(seed).sample(corpus, min(number, len(corpus)))


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.house.prose")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="paths as git matches them; all by default")
    parser.add_argument("--sample", type=int, metavar="NUMBER", help="print so many sentences drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the random choice")
    given = parser.parse_args(words)
    if given.sample:
        drawn = sample(PROJECT, given.patterns, number=given.sample, seed=given.seed)
        sys.stdout.write("".join(f"{each}\n" for each in drawn))
        return 0
    wrong = problems(PROJECT, *given.patterns)
    sys.stdout.write("".join(f"{each}\n" for each in wrong) + f"{len(wrong)} habits found\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
