"""The limits of each reader, from the settings of the application that runs it."""

from truelog.control import application
from truelog.control.application import ARCHIVE
from truelog.lag.verdict import Limits
from truelog.support.settings import Settings

_FINE_SECONDS = 10.0  # the usual duration of a batch, added to the trigger interval
POLLS = 3  # a sample older than this many poll intervals is not current


def application_of_reader(settings: Settings, reader: str) -> str:
    """The application that runs the reader."""
    return ARCHIVE if reader == ARCHIVE else application.application_of_view(settings, reader)


def limits(settings: Settings, reader: str) -> Limits:
    """The limits for this reader. They include the trigger interval, because the reader falls behind by that much."""
    runner = application_of_reader(settings, reader)
    trigger = settings.archive_trigger_seconds if runner == ARCHIVE else settings.stream_trigger_seconds
    return Limits(
        blind=POLLS * settings.lag_poll_seconds,
        fine=trigger + _FINE_SECONDS,
        late=trigger + settings.lag_late_seconds,
        still=application.silence_limits(settings, runner).silence.total_seconds(),
        falling=settings.lag_falling_seconds,
        backed=runner != ARCHIVE,
    )
