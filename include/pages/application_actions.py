"""Actions on applications: restart, stop and start.

An action records a request with the user's name, and the application's DAG carries out the request.
"""

import logging

from fastapi import APIRouter, Depends, HTTPException

from pages.access import SignedIn, may_restart, may_stop, require_own_page
from pages.answer import Answer
from truelog.apps import launcher
from truelog.control import application
from truelog.storage.database import connect
from truelog.support.settings import Settings

router = APIRouter(prefix="/streams/{name}", dependencies=[Depends(require_own_page)])
log = logging.getLogger("truelog.pages")


@router.post("/restart")
def restart(name: str, user: SignedIn) -> Answer:
    """Restart the application once, after the current batch. A stopped application must be started instead."""
    settings = _settings_for(name)
    if not may_restart(user, name):
        raise HTTPException(
            403, f"You may not restart {name}. This requires permission to clear tasks of the stream_{name} DAG"
        )
    with connect(settings) as connection:
        if application.load_status(connection, name).desired == application.STOPPED:
            raise HTTPException(409, f"{name} is stopped. Start it instead")
        application.request_restart(connection, name, user.get_name())
    return _accepted(name, "restart", user.get_name())


@router.post("/stop")
def stop(name: str, user: SignedIn) -> Answer:
    """Stop the application until someone starts it again."""
    settings = _settings_that_may_change(name, user)
    with connect(settings) as connection:
        application.set_desired(connection, name, application.STOPPED, user.get_name())
    return _accepted(name, application.STOPPED, user.get_name())


@router.post("/start")
def start(name: str, user: SignedIn) -> Answer:
    """Start the application, at once even if it RESTS after repeated failures."""
    launcher.request_start(_settings_that_may_change(name, user), name, user.get_name())
    return _accepted(name, application.RUNNING, user.get_name())


def _settings_that_may_change(name: str, user: SignedIn) -> Settings:
    settings = _settings_for(name)
    if not may_stop(user):
        raise HTTPException(403, f"You may not stop or start {name}. This requires permission to change connections")
    return settings


def _settings_for(name: str) -> Settings:
    settings = Settings()
    if name not in application.application_names(settings):
        raise HTTPException(404, f"No application {name!r}")
    return settings


def _accepted(name: str, action: str, user: str) -> Answer:
    log.info("%s: %s requested by %s", name, action, user)
    return Answer(application=name, asked=action, doer=user)
