"""`truelog doctor` lists every check, and its exit code says if one has failed. `truelog lineage` lists the jobs."""

import json
from pathlib import Path

import pytest

from tests.chosen_views import copy_views
from tests.command import answer, shared_spark, truelog
from tests.library.lineage.judged_events import require_valid
from truelog.support.settings import Settings


def test_every_area_is_examined_and_a_failure_has_its_cure(platform: Settings) -> None:
    ended = truelog("doctor", "--json", TRUELOG_S3_BUCKET="nowhere")
    results = json.loads(ended.stdout)["results"]
    assert {each["area"] for each in results} == {"machine", "postgresql", "object store", "kafka"}
    assert ended.returncode == 1
    [failed] = [each for each in results if each["area"] == "object store" and each["outcome"] == "FAILED"]
    shown = truelog("doctor", TRUELOG_S3_BUCKET="nowhere", COLUMNS="400")
    assert shown.returncode == 1
    assert f"object store, answers: {failed['cure']}" in shown.stdout


@pytest.mark.usefixtures("spark")
def test_lineage_shows_each_job_and_sends_nothing(platform: Settings, tmp_path: Path) -> None:
    views = str(copy_views(tmp_path, "page_views", "also_bought"))
    (tmp_path / "broken.py").write_text("VIEW = 1\n")
    known = {"TRUELOG_VIEWS_FOLDER": views, "TRUELOG_OPENLINEAGE_URL": "http://127.0.0.1:1"}
    with shared_spark():
        found = answer("lineage", exit_code=3, **known)
        shown = truelog("lineage", "page_views", COLUMNS="400", **known)
    for event in found["events"]:
        require_valid(event)
    names = {each["job"]["name"] for each in found["events"]}
    views_alone = {"stream.page_views", "reconcile.page_views"}
    assert names >= {"archive.click", "rebuild.also_bought", "reconcile.also_bought", *views_alone}
    assert "broken" in found["refused"]
    assert shown.returncode == 0
    lines = [line.split() for line in shown.stdout.splitlines() if line.strip()]
    assert {line[0] for line in lines[2:]} == views_alone
    server = f"postgres://{platform.database_host}:{platform.database_port}"
    assert all(line[-2:] == [server, f"{platform.database_name}.views.page_views"] for line in lines[2:])
