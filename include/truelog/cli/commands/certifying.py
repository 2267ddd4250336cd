"""`truelog verify`, `truelog certificates`: what was proved equal, when, and whether it still is."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from truelog.cli.naming import named
from truelog.cli.output import AsJson, Exit, print_json
from truelog.support.durations import in_words
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.reconcile.certificate_store import CertificateEntry

Name = Annotated[
    str, typer.Argument(metavar="CERTIFICATE", help="An id, a file, an object in the bucket, or latest:VIEW.")
]
One = Annotated[str | None, typer.Argument(metavar="[VIEW]", help="Only of this view.")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many, the newest first.")]


def verify(name: Name, as_json: AsJson = False) -> None:
    """Rebuild a certified view from the archive's raw bytes alone, no database asked, and compare it by hashes.

    Exit code 0 where it is EQUAL, 1 where it is DIFFERENT, 3 where nobody can tell: SUPERSEDED by other code, or the
    archive does not reach so far.
    """
    from truelog.reconcile import certificate_store
    from truelog.reconcile.certificate_verifier import VerificationVerdict
    from truelog.reconcile.certificate_verifier import verify_certificate as prove
    from truelog.support.errors import BadInput

    settings = Settings()
    try:
        certified = certificate_store.find_certificate(settings, name)
    except BadInput as wrong:
        typer.echo(wrong, err=True)
        raise typer.Exit(Exit.BAD_USE) from wrong
    found = prove(settings, certified)
    if as_json:
        print_json(found.as_dict())
    else:
        line = f"{found.certificate}  {found.rows:,} rows  {found.answer}  {found.reason}".rstrip()
        Console().print(line, highlight=False, markup=False, soft_wrap=True)
    codes = {VerificationVerdict.EQUAL: Exit.FINE, VerificationVerdict.DIFFERENT: Exit.DIFFERENT}
    raise typer.Exit(codes.get(found.answer, Exit.UNKNOWN))


def certificates(view: One = None, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List what was proved equal, and how old each proof is; below it, the views that have none."""
    from truelog.reconcile import certificate_store as kept
    from truelog.storage import db_snapshot
    from truelog.views import catalogue

    settings = Settings()
    asked = named(settings, [view] if view else None) or catalogue.view_names(settings.views_folder)
    with db_snapshot.read_snapshot(settings) as connection:
        entries = kept.newest_certificates(connection, view, limit)
        without = [each for each in asked if not kept.newest_certificates(connection, each, 1)]
    if as_json:
        print_json({"certificates": [asdict(entry) for entry in entries], "without": without})
        return
    console = Console()
    if entries:
        console.print(_table(entries))
    for each in without:
        console.print(f"{each} has no certificate: the next equal `truelog reconcile` makes one", highlight=False)


def _table(entries: "list[CertificateEntry]") -> Table:
    """Each id begins with its view; one that is cut short finds nothing."""
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("certificate", overflow="fold")
    for name in ("version", "rows", "age"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in entries:
        table.add_row(each.id, str(each.version), f"{each.row_count:,}", in_words(each.age_seconds))
    return table
