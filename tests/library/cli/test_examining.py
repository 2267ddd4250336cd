"""`truelog doctor` lists every check, and its exit code says whether one has failed."""

import json

from tests.command import truelog
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
