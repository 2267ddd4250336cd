"""Draw `build/bench.json` as `build/bench.svg`, and the freshness of engines as `build/bench-freshness.svg`.

Runs in the `.venv-bench` environment.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

_PERCENTILES = {"p50_seconds": "o", "p95_seconds": "|", "p99_seconds": "D"}  # and their markers


def main() -> None:
    plt.switch_backend("svg")
    source = Path(sys.argv[1])
    whole = json.loads(source.read_text())
    title = f"{whole['machine']} · {whole['made_at']}"
    _draw_costs(whole["rows"], title, source.with_suffix(".svg"))
    _draw_freshness(whole["rows"], title, source.with_name(f"{source.stem}-freshness.svg"))


def _draw_costs(every_row: list[dict[str, Any]], title: str, to: Path) -> None:
    rows = [row for row in every_row if row["events_per_second"] and "cpu_us_per_event" in row][::-1]
    if not rows:
        return
    figure, (speed, cost) = plt.subplots(1, 2, figsize=(13, 1.5 + 0.4 * len(rows)), sharey=True, layout="constrained")
    labels = [f"{row['job']} · {row['engine']}" for row in rows]
    colors = ["C0" if row["engine"] == "truelog" else "C7" for row in rows]
    speed.barh(labels, [row["events_per_second"] for row in rows], color=colors)
    speed.set(xlabel="events/s", xscale="log")
    _stack(cost, labels, [row["cpu_us_per_event"] for row in rows])
    figure.suptitle(f"{title}{_warning(rows)}", fontsize=9)
    figure.savefig(to)


def _draw_freshness(every_row: list[dict[str, Any]], title: str, to: Path) -> None:
    """A line of percentiles for each engine, in a panel for each job that several engines did."""
    jobs = defaultdict[str, dict[str, dict[str, Any]]](dict)
    for row in every_row:
        if "p99_seconds" in row:
            jobs[row["job"]][row["engine"]] = row
    compared = {job: engines for job, engines in jobs.items() if len(engines) > 1}
    if not compared:
        return
    figure, panels = plt.subplots(
        len(compared), 1, figsize=(8, 1 + 1.5 * len(compared)), sharex=True, squeeze=False, layout="constrained"
    )
    for axes, (job, engines) in zip(panels[:, 0], compared.items(), strict=True):
        for name, row in [*engines.items()][::-1]:
            color = "C0" if name == "truelog" else "C7"
            axes.plot([row[each] for each in _PERCENTILES], [name] * len(_PERCENTILES), color=color)
            for each, marker in _PERCENTILES.items():
                axes.plot(row[each], name, marker, color=color)
        axes.set_title(job, fontsize=9, loc="left")
        axes.set(xscale="log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("{x:g}")
        axes.margins(y=0.3)
    panels[-1, 0].set(xlabel="seconds from acknowledged to readable: p50 ●, p95 |, p99 ◆")
    figure.suptitle(f"{title}{_warning([row for each in compared.values() for row in each.values()])}", fontsize=9)
    figure.savefig(to)


def _stack(axes: Any, labels: list[str], costs: list[dict[str, float]]) -> None:
    """Bars of CPU time per event, with a part for each process."""
    axes.set_prop_cycle(color=plt.colormaps["tab20"].colors)  # ten colours are too few
    left = [0.0] * len(costs)
    for name in dict.fromkeys(name for cost in costs for name in cost if name != "all"):
        values = [cost.get(name, 0.0) for cost in costs]
        axes.barh(labels, values, left=left, label=name)
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.set(xlabel="CPU microseconds per event")
    axes.legend(fontsize=7)


def _warning(rows: list[dict[str, Any]]) -> str:
    busiest = max(float(row.get("other_cores", 0)) for row in rows)
    return f" · other programs used up to {busiest:.1f} cores" if busiest > 0.2 else ""


if __name__ == "__main__":
    main()
