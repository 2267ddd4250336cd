"""Checkpoints of streams: private, in memory where that is possible, and one for each run."""

import os
import stat
from pathlib import Path

import pytest

from truelog.log.positions import Positions
from truelog.streaming import spark_offsets
from truelog.streaming.spark_offsets import batch_range, fresh_checkpoint
from truelog.support.setting_groups.namespace import Names

BEGIN = Positions({"t": {0: 5, 1: 5}}, {"t": "id"})


@pytest.fixture(params=["memory", "disk"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "disk":
        monkeypatch.setattr(spark_offsets, "_MEMORY", tmp_path / "none")
    elif not spark_offsets._MEMORY.is_mount():
        pytest.fail("this test needs a file system in memory")
    return tmp_path / "scratch" / "stream"


def test_each_run_has_a_private_checkpoint_and_removes_the_former_one(folder: Path) -> None:
    before = os.umask(0o022)
    try:
        first, second = fresh_checkpoint(folder).resolve(), fresh_checkpoint(folder).resolve()
    finally:
        os.umask(before)
    assert not first.exists()
    assert list(folder.iterdir()) == [folder / second.name]
    is_in_memory = second.is_relative_to(spark_offsets._MEMORY)
    private = second.parent if is_in_memory else second.parent.parent
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    if is_in_memory:
        assert not first.parent.exists()


def test_a_folder_of_an_earlier_release_is_replaced(folder: Path) -> None:
    old = folder / "former" / "offsets"
    old.mkdir(parents=True)
    fresh_checkpoint(folder)
    assert not old.exists()


def test_the_range_of_a_batch_is_in_the_offset_log(folder: Path) -> None:
    checkpoint = _logged(folder, '{"t":{"0":7,"1":5}}', '{"t":{"0":9,"1":6}}')
    assert batch_range(checkpoint, 0, BEGIN, Names()) == (BEGIN, Positions({"t": {0: 7, 1: 5}}, {"t": "id"}))
    assert batch_range(checkpoint, 1, BEGIN, Names())[1] == Positions({"t": {0: 9, 1: 6}}, {"t": "id"})


def test_a_batch_that_ends_before_it_begins_is_refused(folder: Path) -> None:
    checkpoint = _logged(folder, '{"t":{"0":7,"1":4}}')
    with pytest.raises(RuntimeError, match="ends before positions"):
        batch_range(checkpoint, 0, BEGIN, Names())


def _logged(folder: Path, *ends: str) -> Path:
    checkpoint = fresh_checkpoint(folder)
    (checkpoint / "offsets").mkdir()
    for number, each in enumerate(ends):
        (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{each}\n")
    return checkpoint
