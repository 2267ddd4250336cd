"""Times and durations on the command line. Wrong text is a usage error, not a failure."""

from datetime import UTC, datetime, timedelta

import typer


def past_time(text: str) -> datetime:
    """The time of a timestamp, or of a duration such as 2h, which means two hours ago."""
    from truelog.support import durations, timestamps
    from truelog.support.errors import BadDeclaration

    try:
        return timestamps.parse_timestamp(text)
    except ValueError:
        pass
    try:
        return datetime.now(UTC) - durations.parse_brief(text)
    except (BadDeclaration, OverflowError) as error:
        raise typer.BadParameter(f"{text!r}: write a time such as 2026-11-22T10:00:00Z, or 30m, 2h, 7d") from error


def duration(text: str) -> timedelta:
    """The duration of a text such as 30m, 2h or 1d."""
    from truelog.support.durations import parse_brief
    from truelog.support.errors import BadDeclaration

    try:
        return parse_brief(text)
    except BadDeclaration as error:
        raise typer.BadParameter(str(error)) from error
