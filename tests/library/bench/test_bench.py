"""The benchmark arithmetic and the format of `build/bench.json`. The measurements themselves run in `make bench`."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench import report
from tests.bench.__main__ import LEAST, parser
from tests.bench.freshness import VIEWS, Marks, at
from tests.bench.peers import together
from tests.bench.row import OURS, Row, beside
from tests.bench.suite import JOBS
from tests.bench.suite import VIEWS as STREAMED
from truelog.views import catalogue

OUR_ROW = Row("archive", OURS, 30_000.0, "alone", "a note", more={"wal_bytes_per_event": 12.3456789})
PEER_ROW = Row("archive", "other", 2_000.0, "alone", "another")


def test_all_jobs_run_by_default_and_a_too_short_log_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert parser().parse_args([]).jobs == list(JOBS)
    assert parser().parse_args(["--events", str(LEAST), "--jobs", "stream"]).jobs == ["stream"]
    with pytest.raises(SystemExit):
        parser().parse_args(["--events", str(LEAST - 1)])
    assert "at least" in capsys.readouterr().err


def test_the_ratio_compares_the_same_job() -> None:
    assert beside(OUR_ROW, PEER_ROW).ratio == 15
    with pytest.raises(ValueError, match="different jobs"):
        beside(OUR_ROW, Row("rebuild", "other", 1.0, "alone", ""))


def test_only_rows_of_other_engines_have_a_ratio(tmp_path: Path) -> None:
    rows = [OUR_ROW, beside(OUR_ROW, PEER_ROW)]
    report.write(tmp_path / "build" / "bench.json", rows, events=7)
    ours, theirs = json.loads((tmp_path / "build" / "bench.json").read_text())["rows"]
    assert ours == {
        "job": "archive",
        "engine": "truelog",
        "events_per_second": 30_000.0,
        "ran": "alone",
        "note": "a note",
        "wal_bytes_per_event": 12.3457,
    }
    assert theirs["ratio"] == 15
    shown = StringIO()
    report.show(rows, Console(file=shown, width=200))
    assert "15.0" in shown.getvalue()


def test_the_rate_covers_the_time_when_all_processes_worked() -> None:
    early = [(0.0, 1), (10.0, 1_001), (20.0, 2_001), (30.0, 3_001)]
    late = [(10.0, 1), (20.0, 501)]
    assert together([early, late]) == 100 + 50


def test_percentiles_are_observed_values() -> None:
    hundred = [float(n) for n in range(1, 101)]
    assert (at(0.5, hundred), at(0.99, hundred), at(0.99, [3.0])) == (50.0, 99.0, 3.0)


def test_a_mark_is_complete_when_every_view_shows_it() -> None:
    marks = Marks()
    host = marks.make(1).key
    marks.acknowledged[host] = 10.0
    for view in VIEWS[1:]:
        marks.shown[view][host] = 11.5
    assert not marks.all_shown
    marks.shown[VIEWS[0]][host] = 12.0
    assert marks.all_shown
    assert marks.seconds(VIEWS[0]) == [2.0]


def test_the_measured_views_exist() -> None:
    assert {view for views in STREAMED.values() for view in views} | set(VIEWS) <= set(catalogue.view_names())
