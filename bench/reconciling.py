"""The duration of `truelog reconcile` of equal views, from typed columns and from raw bytes."""

import os
from collections.abc import Sequence
from functools import partial

from bench import command
from bench.corpus import in_log
from bench.cpu import DRIVER, Meter, measured
from bench.ground import services
from bench.row import OURS, Row
from truelog.support.settings import Settings

WAYS = {"reconcile, equal": (), "reconcile, equal, from raw bytes": ("--from-raw",)}

COMMAND = "command"


def run(settings: Settings, views: Sequence[str]) -> list[Row]:
    return [_row(settings, job, views, options) for job, options in WAYS.items()]


def _row(settings: Settings, job: str, views: Sequence[str], options: Sequence[str]) -> Row:
    # The command ends within the measurement, so its CPU time counts for this process, which waits for it. It fails if
    # a view is not equal.
    cost = measured(Meter(services(settings), os.getpid()), partial(command.run, ["reconcile", *views, *options]))
    events = in_log(settings)
    named = {COMMAND if name == DRIVER else name: value for name, value in cost.per_event(events).items()}
    return Row(
        job,
        OURS,
        events / cost.wall,
        "alone",
        f"{len(views)} views, with the start of the command",
        more={"events": events, "seconds": cost.wall},
        guarantees="row by row at exact positions",
        cpu_us_per_event=named,
        other_cores=cost.other_cores,
    )
