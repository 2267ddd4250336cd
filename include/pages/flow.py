"""The flow of events, and whether the collector accepts them."""

from fastapi import APIRouter

from pages.answer import Answer, parts
from pages.data import OF_VIEWS
from truelog.reports import flow as flow_report
from truelog.reports.flow import ServiceFlow
from truelog.schema.loading import events
from truelog.services.health_check import require_healthy
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

router = APIRouter(prefix="/data", dependencies=OF_VIEWS)
_COLLECTOR = "collector"
_PROBE_SECONDS = 1.0


@router.get("/flow")
def flow() -> Answer:
    """Topics, the archive, views, outputs and readers, each with its state, and the event types with a quality page."""
    settings = Settings()
    found = parts(flow_report.flow_report(settings))
    return Answer(**found, collector=_collector(settings), types=events.event_names(settings.events_folder))


def _collector(settings: Settings) -> ServiceFlow:
    """It is asked, because it leaves no trace while no event arrives."""
    try:
        require_healthy(_COLLECTOR, settings, seconds=_PROBE_SECONDS)
    except ServiceDown as down:
        return ServiceFlow(_COLLECTOR, "DOWN", str(down))
    return ServiceFlow(_COLLECTOR, "RUNNING")
