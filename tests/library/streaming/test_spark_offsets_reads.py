"""Offsets of topics that belong to another environment have the platform's names inside, and Kafka's in Spark's log."""

from pathlib import Path

import pytest

from truelog.log.positions import Positions
from truelog.streaming.spark_offsets import batch_range
from truelog.support.setting_groups.namespace import Names

BEGIN = Positions({"page_view": {0: 5}, "ticks": {0: 2}}, {"page_view": "a", "ticks": "b"})


@pytest.mark.parametrize(("reads", "before"), [("red", "red."), ("", "")])
def test_spark_names_the_topics_of_the_other_environment(reads: str, before: str, tmp_path: Path) -> None:
    names = Names("blue", reads)
    started = BEGIN.renamed(names.topic_of)
    assert started.offsets == {f"{before}page_view": {0: 5}, f"{before}ticks": {0: 2}}
    (tmp_path / "offsets").mkdir()
    for number, end in enumerate((7, 9)):
        later = Positions({f"{before}page_view": {0: end}, f"{before}ticks": {0: 3}})
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{later.as_json()}\n")
    first, second = (Positions({"page_view": {0: end}, "ticks": {0: 3}}, BEGIN.ids) for end in (7, 9))
    assert batch_range(tmp_path, 0, BEGIN, names) == (BEGIN, first)
    assert batch_range(tmp_path, 1, BEGIN, names) == (first, second)
