"""No stored byte and no request blanks a page: each route answers with JSON or with a reason."""

import json
import subprocess
import sys

import pytest

from pages.files import PAGES
from runtime import airflow
from runtime.airflow_client import Airflow
from tests.pages.fetch import fetch
from tests.pages.hostile_bytes import hostile_values, store_hostile
from truelog.support.settings import PROJECT, Settings

EXAMPLES = 4  # of each route
NOISE = 20  # random values, and as many torn values


@pytest.fixture(scope="module")
def hostile(filled: Settings, kafka: Settings) -> tuple[int, int]:
    """The numbers of dead letters, and of archived records of each other topic."""
    values = hostile_values(112, NOISE)
    return store_hostile(filled, values), len(values)


def test_every_route_answers_hostile_records_and_requests(
    hostile: tuple[int, int], pages: Settings, users: dict[str, Airflow]
) -> None:
    """`pages` sets up Airflow's own database, which some answers read, too."""
    command = [sys.executable, "-m", "tests.pages.hostile_requests", *map(str, (EXAMPLES, *hostile))]
    ended = subprocess.run(
        command, cwd=PROJECT, env=airflow.environment(pages), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-6000:]
    asked = json.loads(ended.stdout.splitlines()[-1])["asked"]
    assert asked["record"] == hostile[0] // 2 + 2 * hostile[1]
    assert asked.keys() >= {f"/{each}" for each in PAGES} | {
        "/data/vitals",
        "/export/rows.{form}",
        "/streams/{name}/stop",
    }
    assert fetch(users["admin"], "GET", "data/dead-letters?hours=100000").status == 200
    listed = json.load(fetch(users["admin"], "GET", "data/records?topic=dead_letter"))["records"]
    assert [each["offset"] for each in listed if not each["rejected"]] == []
    assert listed[-1]["value"] == hostile_values(112, NOISE)[0].decode()  # as it was posted
