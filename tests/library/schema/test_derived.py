"""Derived columns are what a pattern finds in a field, whatever the other records contain."""

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.house.tree import PROJECT
from tests.library.hostile import THING
from truelog.schema import derived, event_version
from truelog.schema.derived import Derivation, Derived
from truelog.schema.loading.events import load_event, load_events
from truelog.support.errors import BadDeclaration

DOCS = PROJECT / "docs/urls.md"
[URL] = load_events()["page_view"].derived
HOSTS = st.from_regex(r"[a-z][a-z0-9-]{0,9}(\.[a-z]{2,5}){0,2}|\[[0-9a-f:]{2,9}\]", fullmatch=True)
PATHS = st.from_regex(r"(/[\w%.~ é-]{0,5}){0,3}", fullmatch=True)


def found(texts: list[str | None], declared: Derivation = URL) -> list[tuple[str | None, ...]]:
    columns = declared.columns(pa.array(texts, pa.string()))
    return list(zip(*(columns[name].to_pylist() for name in declared.names), strict=True))


def test_host_and_page_of_a_url() -> None:
    urls = {
        "https://user@h2:8080/p#f": ("h2", "/p"),
        "http://h": ("h", None),
        "http://h?q=/x": ("h", None),
        "/page?q": (None, "/page"),
        "http://h/a?u=http://other/b": ("h", "/a"),
        "HTTP://[::1]:80/x?y#z": ("[::1]", "/x"),
        "http://h/%00%zz": ("h", "/%00%zz"),
        "http://h/a\nb": ("h", "/a\nb"),
        "http://h/\U0001f600": ("h", "/\U0001f600"),
        "http://[bad": (None, None),
        "http://h:8a/x": (None, None),
        "http:///x": (None, None),
        "https://ZQB.example/X": ("zqb.example", "/X"),
        "//zqb.example/x": ("zqb.example", "/x"),
        "http://ann@home@h/x": ("h", "/x"),
        " http://h/x \n": ("h", "/x"),
        "http://h/a b ?q ": ("h", "/a b "),
        "mailto:a@b": (None, None),
        "": (None, None),
    }
    assert dict(zip(urls, found([*urls]), strict=True)) == urls
    assert found([None]) == [(None, None)]


@given(HOSTS, st.sampled_from(["", ":", ":80"]), PATHS, st.sampled_from(["", "?", "?a=/b", "#c"]))
def test_law_host_and_page_are_those_of_pythons_parser(host: str, port: str, path: str, rest: str) -> None:
    url = f"https://{host}{port}{path}{rest}"
    try:
        parsed = urlsplit(url)
    except ValueError:  # the brackets do not contain an address
        return
    assert found([url]) == [(parsed.netloc.removesuffix(port), parsed.path or None)]


@given(st.lists(st.none() | st.text() | st.sampled_from(["http://h/p", "http://\U0001f600/é?"])))
def test_law_each_text_is_matched_alone(texts: list[str | None]) -> None:
    assert found(texts) == [row for text in texts for row in found([text])]
    sliced = pa.array([None, "http://x/", *texts], pa.string()).slice(2)
    assert URL.columns(sliced)["host"].to_pylist() == [host for host, _ in found(texts)]


def test_the_table_of_the_docs_is_true() -> None:
    table = re.findall(r"^\| `([^|]+)` \| (?:`(.*)`)? ?\| (?:`(.*)`)? ?\|$", DOCS.read_text(), re.MULTILINE)
    assert len(table) == 14
    assert found([url for url, _, _ in table]) == [(host or None, page or None) for _, host, page in table]


@given(st.lists(st.sampled_from(("http://h/p", "//H", "HTTP:", "//", "@", "/", "\\", "?", "#", ":80", " ", "é", "É"))))
def test_law_a_host_has_no_capital_letters_of_ascii_and_no_delimiters(parts: list[str]) -> None:
    [(host, page)] = found(["".join(parts)])
    assert host is None or not set("ABCDEFGHIJKLMNOPQRSTUVWXYZ/?#@") & {*host}
    assert page is None or (page.startswith("/") and not {"?", "#"} & {*page})


def test_an_empty_group_is_null() -> None:
    either = Derived("text", "^(?:(?P<number>[0-9]+)|(?P<word>[a-z]+))$")
    assert found(["12", "ab", "?"], either) == [("12", None), (None, "ab"), (None, None)]


@pytest.mark.parametrize(
    ("source", "pattern", "reason"),
    [
        ("nothing", "(?P<word>a)", "come from a text field, and 'nothing' is not"),
        ("amount", "(?P<word>a)", "come from a text field, and 'amount' is not"),
        ("text", "(?P<word>a", "cannot be used: .*missing \\)"),
        ("text", "(a)", r"cannot be used: .* Each group needs a name, as in \(\?P<host>…\)"),
        ("text", "a", "has no group"),
        ("text", "(?P<Word>a)", "the group 'Word' is a column; use a-z"),
        ("text", "(?P<offset>a)", "there is another column 'offset'"),
        ("text", "(?P<text>a)", "there is another column 'text'"),
        ("text", r"(?P<word>\C)", r"has \\C, which splits characters"),
        ("text", r"(?P<word>(?=a)a)", "cannot be used"),
    ],
)
def test_a_column_that_cannot_be_derived_is_refused(source: str, pattern: str, reason: str) -> None:
    with pytest.raises(BadDeclaration, match=f"^thing: .*{reason}"):
        replace(THING, derived=(Derived(source, pattern),))


def test_two_patterns_never_give_one_column() -> None:
    twice = (Derived("text", "(?P<word>a)"), Derived("text", "(?P<word>b)"))
    with pytest.raises(BadDeclaration, match="there is another column 'word'"):
        replace(THING, derived=twice)
    with pytest.raises(BadDeclaration, match="no group 'wrod', so"):
        replace(THING, derived=(Derived("text", "(?P<word>a)", {"wrod": "The word."}),))


def test_a_backslash_before_a_letter_is_no_part_of_a_character() -> None:
    derived.require_valid("thing", (Derived("text", r"\\C(?P<word>a)"),), THING.fields)


def test_a_file_declares_derived_columns(tmp_path: Path) -> None:
    path = tmp_path / "said.py"
    path.write_text(
        "from truelog import Derived, Event, Topic\n"
        "TOPIC = Topic(key=None, subject=(), partitions=1, retention='1 day')\n"
        "DERIVED = [Derived('text', r'^(?P<word>\\w+)', {'word': 'The first word.'})]\n"
        "class Said(Event):\n    text: str\n"
    )
    said = load_event(path)
    assert said.arrow_schema.names[-2:] == ["text", "word"]
    assert re.search(r"\| word \| str, from text \|.*The first word\.", said.markdown)
    assert "word" not in said.json_schema["properties"]


def test_a_column_has_the_words_of_a_field(tmp_path: Path) -> None:
    path = tmp_path / "said.py"
    path.write_text(
        "from truelog import DerivedWords, Event, Topic\n"
        "TOPIC = Topic(key=None, subject=(), partitions=1, retention='1 day')\n"
        "DERIVED = [DerivedWords('text', 'said', 'What was said.')]\n"
        "class Said(Event):\n    text: str\n"
    )
    said = load_event(path)
    assert said.derived[0].columns(pa.array(["Café, 東京都", "?", None])) == {
        "said": pa.array(["cafe 東京 京都", None, None])
    }
    assert re.search(r"\| said \| str, from text \|.*What was said\.", said.markdown)
    declaration = event_version.declaration_of(said)
    assert declaration["derived"] == [{"source": "text", "words": "said", "rule": 1}]
    assert event_version.from_declaration("said", declaration, said.topic, said.quality).derived == said.derived
    declaration["derived"][0]["rule"] = 2
    with pytest.raises(BadDeclaration, match="finds words by the rule 1, not 2"):
        event_version.from_declaration("said", declaration, said.topic, said.quality)
