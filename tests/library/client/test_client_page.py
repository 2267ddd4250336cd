"""The page of `docs/applications.md` that updates itself, with its back end, in a JavaScript runtime.

The commands of that page run here too.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from pyspark.sql.types import LongType, StringType

from runtime import ports
from tests.command import answer
from tests.deadline import deadline, until
from tests.library.services.api.streaming import serving
from truelog import Sum, View
from truelog.kernel import merge
from truelog.storage.database import Connection, connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import PROJECT, Settings
from truelog.tables import deploy
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import outbox
from truelog.tables.table import Table

# What the page needs of a browser. Each new content of the list is printed.
BROWSER = """
globalThis.document = {
  querySelector: () => ({
    replaceChildren: (...items) => console.log(JSON.stringify(items.map((each) => each.textContent))),
  }),
  createElement: () => ({ textContent: "" }),
};
"""
NEWEST = "SELECT reader_id, 'ann' AS author_id, 'says ' || tweet_id AS text FROM {view}"


def example(begin: str) -> str:
    """The example of the page that begins with this line."""
    text = (PROJECT / "docs" / "applications.md").read_text()
    [found] = re.findall(rf"```\w+\n({re.escape(begin)}.*?)```", text, re.DOTALL)
    return str(found)


def timeline() -> CompiledView:
    view = View(
        reads=("tweet",),
        transform=lambda tweet: tweet,
        key=("reader_id", "tweet_id"),
        measures={"entries": Sum()},
        present={"newest": NEWEST},
        publish=True,
    )
    types = {"reader_id": StringType(), "tweet_id": StringType(), "entries": LongType()}
    return CompiledView((Table("home_timeline", view, types, "timeline"),))


def post(connection: Connection, compiled: CompiledView, reader: str, tweet: str) -> None:
    """What a merge does."""
    with connection.transaction():
        merge.lock(connection, compiled)
        connection.execute("INSERT INTO state.home_timeline_v1 VALUES (%s, %s, 1)", (reader, tweet))
        outbox.record_changes(connection, compiled)


@contextmanager
def program(*command: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    """A process until the end of the block."""
    with subprocess.Popen(command, text=True, **options) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def keys() -> dict[str, str]:
    """What the commands of the page print: the key of each role."""
    commands = [shlex.split(line) for line in example(".venv/bin/truelog key add").splitlines()]
    return {made["role"]: made["key"] for made in (answer(*words) for _, *words in commands)}


def ask_over_http(url: str) -> httpx.Response:
    """What the example does with `curl`."""
    program, option, header, address = shlex.split(os.path.expandvars(example("curl")))
    assert (program, option) == ("curl", "-H")
    name, _, value = header.partition(": ")
    return httpx.get(address.replace("http://127.0.0.1:18083", url), headers={name: value}, timeout=deadline(30))


@pytest.fixture
def page(postgresql: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str, str]]:
    """The folder and the address of the page, which its own back end serves, and the address of the API."""
    monkeypatch.setenv("SHOP_READS", keys()["reader"])
    with serving(postgresql) as api:
        port = ports.free({"page": ports.of_this_process()})["page"]
        for name, begin in (("timeline.html", "<!doctype html>"), ("timeline.py", "# timeline.py")):
            (tmp_path / name).write_text(example(begin).replace("http://127.0.0.1:18083", api.url))
        with program(sys.executable, "timeline.py", str(port), cwd=tmp_path, stderr=subprocess.DEVNULL):
            yield tmp_path, f"http://127.0.0.1:{port}", api.url


def page_of(address: str) -> str:
    """The page, as soon as the back end listens."""

    def answers() -> None:
        try:
            httpx.get(address, timeout=deadline(30))
        except httpx.TransportError as error:
            raise ServiceDown(str(error)) from error

    until(answers, 30, "the back end")
    return httpx.get(address, timeout=deadline(30)).text


def test_the_page_shows_a_timeline_and_updates_itself(postgresql: Settings, page: tuple[Path, str, str]) -> None:
    """It has no key, and sees no change of another reader."""
    folder, address, api = page
    with connect(postgresql, autocommit=True) as connection:
        deploy.deploy_table(connection, timeline())
        post(connection, timeline(), "bob", "t1")
        html = page_of(address)
        assert os.environ["SHOP_READS"] not in html
        assert len(example("<!doctype html>").splitlines()) <= 20
        [script] = re.findall(r"<script type=\"module\">(.*?)</script>", html, re.DOTALL)
        (folder / "page.js").write_text(BROWSER + script)
        deno = str(Path(sys.executable).parent / "deno")
        with program(deno, "run", "--allow-net=127.0.0.1", str(folder / "page.js"), stdout=subprocess.PIPE) as shown:
            assert shown.stdout is not None
            assert json.loads(shown.stdout.readline()) == ["ann: says t1"]
            post(connection, timeline(), "eve", "t2")
            post(connection, timeline(), "bob", "t3")
            assert sorted(json.loads(shown.stdout.readline())) == ["ann: says t1", "ann: says t3"]
        rows = ask_over_http(api).raise_for_status().json()["rows"]
        assert sorted(row["text"] for row in rows) == ["says t1", "says t3"]
