"""The metrics text format, and the example files for Prometheus and Grafana."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from runtime.credentials import PORTS
from truelog.lag.verdict import LagVerdict
from truelog.reports.metrics import FAMILIES, Point, render_metrics
from truelog.services import registry
from truelog.services.declaration import METRICS
from truelog.support.durations import in_words
from truelog.support.setting_groups.namespace import Names
from truelog.support.settings import PROJECT

FOLDER = PROJECT / "docs" / "monitoring"
METRIC = re.compile(r"\btruelog_\w+")
PACE = re.compile(r"\b(rate|increase|deriv)\((truelog_\w+)")
LABELLED = re.compile(r'verdict(?:=~?|!=)"([^"]+)"')


def expressions() -> Iterator[str]:
    """The expressions in all alerts and panels."""
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in json.loads((FOLDER / "grafana.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def test_every_metric_in_the_examples_exists() -> None:
    named = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert len(named) > 8
    assert named - FAMILIES.keys() == set()


def test_every_verdict_that_is_not_ok_has_an_alert() -> None:
    lag, _ = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    caught = [word for rule in lag["rules"] for found in LABELLED.findall(rule["expr"]) for word in found.split("|")]
    assert {*caught, "OK"} == set(LagVerdict)


def test_an_alert_on_several_verdicts_survives_a_change_between_them() -> None:
    """If the label stayed, each verdict would be a separate alert that is resolved when the next one starts."""
    several = [each for each in expressions() if "|" in "".join(LABELLED.findall(each))]
    assert len(several) == 2
    assert all(each.startswith("max without (verdict) (") for each in several)


def test_rates_use_counters_and_slopes_use_gauges() -> None:
    used = {found for expression in expressions() for found in PACE.findall(expression)}
    assert {function for function, _ in used} == {"rate", "increase", "deriv"}
    for function, name in used:
        assert FAMILIES[name][0] == ("gauge" if function == "deriv" else "counter")


def test_every_alert_has_a_severity_a_summary_and_a_first_step() -> None:
    rules = [r for g in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for r in g["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "first_step"}


def test_prometheus_scrapes_each_service_with_metrics() -> None:
    [job] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    ports = [http.port for http in registry.HTTP.values() if METRICS in http.routes]
    assert job["static_configs"] == [{"targets": [f"127.0.0.1:{port}" for port in ports]}]
    assert PORTS["lag"] in ports
    assert job["authorization"]["type"] == "Bearer"
    absent = next(e for e in expressions() if "absent" in e)
    assert f'job="{job["job_name"]}"' in absent


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels: list[dict[str, Any]] = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    cells = [(x, y) for p in panels for x in _span(p, "x", "w") for y in _span(p, "y", "h")]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def _span(panel: dict[str, Any], begin: str, length: str) -> range:
    place: dict[str, int] = panel["gridPos"]
    return range(place[begin], place[begin] + place[length])


def test_points_follow_their_family_and_labels_are_escaped() -> None:
    text = render_metrics(
        [
            Point("truelog_lag_seconds", 0.25, {"reader": 'a"b\\c\nd', "partition": 3}),
            Point("truelog_lag_events", 12_345_678_901),
            Point("truelog_lag_seconds", 1e-7, {"reader": "b", "partition": 0}),
        ],
        {},
    )
    points = [line for line in text.splitlines() if not line.startswith("#")]
    assert points == [
        "truelog_lag_events 1.2345678901e+10",
        'truelog_lag_seconds{partition="3",reader="a\\"b\\\\c\\nd"} 0.25',
        'truelog_lag_seconds{partition="0",reader="b"} 1e-07',
    ]
    assert text.endswith("\n")
    lines = text.splitlines()
    assert lines[lines.index("# TYPE truelog_lag_events gauge") - 1].startswith("# HELP truelog_lag_events ")


def test_each_sample_has_the_labels_of_the_environment() -> None:
    points = [Point("truelog_lag_events", 1), Point("truelog_lag_seconds", 1, {"reader": "b"})]
    lines = [line for line in render_metrics(points, Names("red").labels).splitlines() if not line.startswith("#")]
    assert lines == ['truelog_lag_events{namespace="red"} 1.0', 'truelog_lag_seconds{namespace="red",reader="b"} 1.0']


@pytest.mark.parametrize("name", FAMILIES)
def test_names_follow_prometheus_conventions(name: str) -> None:
    kind, help_text = FAMILIES[name]
    assert (kind == "counter") == name.endswith("_total")
    assert kind in ("counter", "gauge")
    assert "\n" not in help_text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (2.6, "3 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"), (7 * 86400, "7 days")],
)
def test_durations_have_a_suitable_unit(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
