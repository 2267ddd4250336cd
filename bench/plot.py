"""Draw `build/bench.json` as `build/bench.svg`. Runs in the `.venv-bench` environment."""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt


def main() -> None:
    plt.switch_backend("svg")
    source = Path(sys.argv[1])
    whole = json.loads(source.read_text())
    rows = [row for row in whole["rows"] if row["events_per_second"] and "cpu_us_per_event" in row][::-1]
    if not rows:
        return
    figure, (speed, cost) = plt.subplots(1, 2, figsize=(13, 1.5 + 0.4 * len(rows)), sharey=True, layout="constrained")
    labels = [f"{row['job']} · {row['engine']}" for row in rows]
    colors = ["C0" if row["engine"] == "truelog" else "C7" for row in rows]
    speed.barh(labels, [row["events_per_second"] for row in rows], color=colors)
    speed.set(xlabel="events/s", xscale="log")
    _stack(cost, labels, [row["cpu_us_per_event"] for row in rows])
    figure.suptitle(f"{whole['machine']} · {whole['made_at']}{_warning(rows)}", fontsize=9)
    figure.savefig(source.with_suffix(".svg"))


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
