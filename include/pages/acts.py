"""Acts: what a page lets people do to an application: each a wish that its DAG carries out, noted with their name."""

import logging

from fastapi import APIRouter, Depends, HTTPException

from pages.access import SignedIn, from_our_own_pages, may_restart, may_stop
from truelog.control import application
from truelog.storage.database import connect
from truelog.support.settings import Settings

router = APIRouter(prefix="/streams/{name}", dependencies=[Depends(from_our_own_pages)])
log = logging.getLogger("truelog.pages")


@router.post("/restart")
def restart(name: str, user: SignedIn) -> dict[str, str]:
    """Once, after the batch under way; one that is stopped is to be started instead."""
    settings = _known(name)
    if not may_restart(user, name):
        raise HTTPException(403, f"you may not restart {name}: it takes the right to clear tasks of stream_{name}")
    with connect(settings) as connection:
        if application.status(connection, name).desired == application.STOPPED:
            raise HTTPException(409, f"{name} is stopped: start it")
        application.request_restart(connection, name, user.get_name())
    return _told(name, "restart", user.get_name())


@router.post("/stop")
def stop(name: str, user: SignedIn) -> dict[str, str]:
    """Until somebody starts it again."""
    return _want(name, application.STOPPED, user)


@router.post("/start")
def start(name: str, user: SignedIn) -> dict[str, str]:
    return _want(name, application.RUNNING, user)


def _want(name: str, desired: str, user: SignedIn) -> dict[str, str]:
    settings = _known(name)
    if not may_stop(user):
        raise HTTPException(403, f"you may not stop or start {name}: it takes the right to change connections")
    with connect(settings) as connection:
        application.set_desired(connection, name, desired, user.get_name())
    return _told(name, desired, user.get_name())


def _known(name: str) -> Settings:
    settings = Settings()
    if name not in application.application_names(settings):
        raise HTTPException(404, f"there is no application {name!r}")
    return settings


def _told(name: str, asked: str, doer: str) -> dict[str, str]:
    log.info("%s: %s is asked for by %s", name, asked, doer)
    return {"application": name, "asked": asked, "doer": doer}
