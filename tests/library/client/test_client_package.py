"""The wheel of the client, built as the page says, in an environment that has nothing else."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import runtime
from tests.library.relay.published import Published, declared, deployed, publish_all
from truelog import __version__
from truelog.storage.database import Connection
from truelog.support.settings import PROJECT, KafkaUser, Settings
from truelog.tables import deploy

WHEEL = f"truelog_client-{__version__}-py3-none-any.whl"
PROGRAM = """
import json, sys
from truelog.client.client import Client
from truelog.client.errors import NotFound
from truelog.client.output_table import OutputTable

given = json.load(sys.stdin)
found = {}
with Client(**given["client"]) as client:
    found["stored"] = len(client.send({"type": "page_view", "visitor_id": "v1", "url": "https://shop.example/"}).good)
    found["read"] = [row["product"] for row in client.rows(given["view"]).rows]
    rows = {}
    for update in client.subscribe(given["view"]):
        update.apply(rows)
        break
    found["followed"] = sorted(row["product"] for row in rows.values())
    try:
        client.rows("nothing")
    except NotFound as error:
        found["refused"] = type(error).__name__
with OutputTable(given["topic"], given["kafka"]) as table:
    found["table"] = sorted(row["product"] for row in table.rows.values())
found["platform"] = [name for name in sys.modules if name.startswith("truelog.") and "truelog.client" not in name]
print(json.dumps(found))
"""


@pytest.fixture
def view(platform: Settings, connection: Connection) -> Iterator[Published]:
    runtime.up(platform, ("collector", "api"), tethered=True)
    made = deployed(platform, connection)
    yield made
    deploy.deploy_table(connection, declared(made.compiled.name, publish=False))


def given(settings: Settings, view: Published) -> dict[str, Any]:
    collector, api = (settings.address(name) for name in ("collector", "api"))
    client = {
        "collector": f"http://{collector.host}:{collector.port}",
        "api": f"http://{api.host}:{api.port}",
        "producer_key": settings.producer_key.get_secret_value(),
        "reader_key": settings.reader_key.get_secret_value(),
    }
    return {
        "client": client,
        "view": view.compiled.name,
        "topic": view.topic,
        "kafka": settings.kafka(KafkaUser.READER),
    }


def run(*command: str | Path, **options: Any) -> str:
    """What the program prints."""
    return str(subprocess.run([*map(str, command)], check=True, text=True, stdout=subprocess.PIPE, **options).stdout)


@pytest.mark.nightly
def test_an_application_needs_the_wheel_only(platform: Settings, view: Published, tmp_path: Path) -> None:
    view.change({"p1": "1", "p2": "2"})
    publish_all(platform)
    run("make", "client", f"DIST={tmp_path}", cwd=PROJECT)
    with ZipFile(tmp_path / WHEEL) as wheel:
        code = {name for name in wheel.namelist() if ".dist-info/" not in name}
    own = {f"truelog/client/{each.name}" for each in (PROJECT / "include" / "truelog" / "client").glob("*.py")}
    assert code == own | {"truelog/client/py.typed"}
    run(sys.executable, "-m", "venv", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", f"{tmp_path / WHEEL}[kafka]")
    said = run(python, "-I", "-c", PROGRAM, input=json.dumps(given(platform, view)), cwd=tmp_path)
    both = ["p1", "p2"]
    assert json.loads(said) == {
        "stored": 1, "read": both, "followed": both, "refused": "NotFound", "table": both, "platform": [],
    }  # fmt: skip
