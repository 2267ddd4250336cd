"""Certificates: the newest of each view, or those of one view, with the results of their verifications."""

from collections.abc import Iterable

from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import State
from fastapi import APIRouter, HTTPException
from fastapi.responses import StreamingResponse
from sqlalchemy import select

from pages.access import Dag, SignedIn, may_verify
from pages.answer import Answer
from pages.data import OF_VIEWS
from pages.export import attachment
from truelog.reconcile import certificate_checks, certificate_store
from truelog.storage import db_snapshot
from truelog.support.settings import Settings
from truelog.views import catalogue

router = APIRouter(dependencies=OF_VIEWS)
_LISTED = 100


@router.get("/data/certificates")
def certificates(user: SignedIn, view: str = "") -> Answer:
    """The certificates, the views without one, and the verifications that have not ended."""
    settings = Settings()
    names = catalogue.view_names(settings.views_folder)
    with db_snapshot.read_snapshot(settings) as connection:
        newest = certificate_store.newest_of_each_view(connection, names)
        shown = certificate_store.newest_certificates(connection, view, _LISTED) if view else newest
        checks = certificate_checks.latest_checks(connection, [each.id for each in shown])
    return Answer(
        certificates=shown,
        checks=checks,
        without=sorted(set(names) - {each.view for each in newest}),
        pending=_pending(),
        may_verify=may_verify(user),
    )


@router.get("/export/certificate")
def certificate(id: str) -> StreamingResponse:  # noqa: A002  the name in the URL
    """The file that `truelog verify` reads. The database knows the object, so that a request cannot name a file."""
    settings = Settings()
    with db_snapshot.read_snapshot(settings) as connection:
        found = certificate_store.certificate_address(connection, id)
    if found is None:
        raise HTTPException(404, f"No certificate {id!r}")
    content: Iterable[bytes] = [certificate_store.find_certificate(settings, found).as_bytes()]
    return attachment(f"{id}.json", iter(content))


def _pending() -> dict[str, str]:
    """The runs that have not ended, by certificate."""
    query = select(DagRun.conf, DagRun.run_id).where(
        DagRun.dag_id == Dag.VERIFY, DagRun.state.not_in(State.finished_dr_states)
    )
    with create_session() as session:
        return {str((conf or {}).get("certificate")): run for conf, run in session.execute(query).tuples()}
