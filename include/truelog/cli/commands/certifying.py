"""`truelog verify` and `truelog certificates`: verify and list the proofs that views equalled their rebuilds."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE

from truelog.cli.naming import named
from truelog.cli.output import MOST_ROWS, AsJson, Exit, Sheet, print_json, say
from truelog.support.durations import in_words
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.reconcile.certificate_store import CertificateEntry

Name = Annotated[
    str, typer.Argument(metavar="CERTIFICATE", help="The id, a file, an object in the bucket, or latest:VIEW.")
]
OneView = Annotated[str | None, typer.Argument(metavar="[VIEW]", help="List only this view's certificates.")]
Limit = Annotated[int, typer.Option(min=1, max=MOST_ROWS, help="Maximum number of certificates, newest first.")]


def verify(name: Name, as_json: AsJson = False) -> None:
    """Rebuild a certified view from the archive's raw bytes, without the database, and compare hashes.

    The exit code is 0 if the rebuild is EQUAL, 1 if it is DIFFERENT, and 3 if neither is known because newer code has
    SUPERSEDED the certificate or because the archive does not reach the certificate's positions.
    """
    from truelog.reconcile import certificate_store
    from truelog.reconcile.certificate_verifier import VerificationVerdict, verify_certificate

    settings = Settings()
    result = verify_certificate(settings, certificate_store.find_certificate(settings, name))
    if as_json:
        print_json(result.as_dict())
    else:
        line = f"{result.certificate}  {result.rows:,} rows  {result.answer}  {result.reason}".rstrip()
        say(line)
    codes = {VerificationVerdict.EQUAL: Exit.FINE, VerificationVerdict.DIFFERENT: Exit.DIFFERENT}
    raise typer.Exit(codes.get(result.answer, Exit.UNKNOWN))


def certificates(view: OneView = None, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List the certificates with their ages, and the views that have no certificate."""
    from truelog.reconcile import certificate_store
    from truelog.storage import db_snapshot
    from truelog.views import catalogue

    settings = Settings()
    names = named(settings, [view] if view else None) or catalogue.view_names(settings.views_folder)
    with db_snapshot.read_snapshot(settings) as connection:
        entries = certificate_store.newest_certificates(connection, view, limit)
        without = [each for each in names if not certificate_store.newest_certificates(connection, each, 1)]
    if as_json:
        print_json({"certificates": [asdict(entry) for entry in entries], "without": without})
        return
    if entries:
        _table(entries).show()
    for each in without:
        say(f"{each} has no certificate: the next EQUAL `truelog reconcile` makes one")


def _table(entries: "list[CertificateEntry]") -> Sheet:
    """The table of certificates. Ids are wrapped, not truncated, because a truncated id finds no certificate."""
    table = Sheet(box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("certificate", overflow="fold")
    for name in ("version", "rows", "age"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in entries:
        table.add_row(each.id, str(each.version), f"{each.row_count:,}", in_words(each.age_seconds))
    return table
