"""`truelog forget` and `truelog erasures`: forget a person, and show which erasures there are."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE

from truelog.cli.output import AsJson, Sheet, print_json, say
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from truelog.erasure.subject import Named
    from truelog.forgetting.forget import Forgotten
    from truelog.forgetting.receipt import Receipt

Subjects = Annotated[
    list[str],
    typer.Option(
        "--subject",
        metavar="FIELD=VALUE",
        help="A field that identifies people, and the person's value. Name every field: the option may be repeated.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count the records that would be erased.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of an erasure, or its first characters.")]

app = typer.Typer(help="The erasures of people, with receipts.", no_args_is_help=True)


def forget(subject: Subjects, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Erase a person from the archive, the views and everything else that the platform keeps.

    There is no way back. If the command is interrupted, repeat it: it continues.
    """
    from truelog.forgetting import forget as forgetting
    from truelog.forgetting import request
    from truelog.storage.audit_trail import by_hand

    settings, named = Settings(), _named(subject)
    if dry_run:
        found = request.preview(settings, named)
        if as_json:
            print_json(
                {"dry_run": True, "records": found.records, "views": found.views, "unclear": list(found.unclear)}
            )
            return
        for topic, records in found.records.items():
            say(f"would be erased: {records:,} records of {topic}")
        say(f"views that would be rebuilt and compared: {', '.join(found.views) or 'none'}")
        for value in found.unclear:
            say(
                f"{value}: not found in every text. A number is found only beside the name of its field. A value of "
                "several words, or with punctuation at an end, is found there and in quotes"
            )
        return
    _tell(settings, forgetting.forget(settings, named, by_hand()), as_json)


@app.command("list")
def list_erasures(as_json: AsJson = False) -> None:
    """List the erasures, oldest first, and how far each is."""
    from truelog.erasure import ledger
    from truelog.storage import db_snapshot

    with db_snapshot.read_snapshot(Settings()) as connection:
        entries = ledger.entries(connection)
    if as_json:
        rows = [
            {"id": str(e.erasure.id), "recorded_at": e.recorded_at, "step": e.step.name.lower(), "records": e.records}
            for e in entries
        ]
        print_json({"erasures": rows})
        return
    table = Sheet("id", "recorded (UTC)", "finished step", "records", box=SIMPLE, padding=(0, 1, 0, 0))
    for each in entries:
        records = sum(each.records.values())
        step = f"{each.step} {each.step.name.lower()}"
        table.add_row(str(each.erasure.id), f"{each.recorded_at:%Y-%m-%d %H:%M:%S}", step, f"{records:,}")
    table.show()


@app.command()
def show(erasure: Id, as_json: AsJson = False) -> None:
    """Show the receipt of an erasure: what is gone, and by when the rest is gone."""
    from truelog.erasure import ledger
    from truelog.forgetting.receipt import receipt_of
    from truelog.storage.database import connect

    settings = Settings()
    with connect(settings) as connection:
        found = [each for each in ledger.entries(connection) if str(each.erasure.id).startswith(erasure)]
    if len(found) != 1:
        raise typer.BadParameter(f"{len(found)} erasures begin with {erasure}; see `truelog erasures list`")
    receipt = receipt_of(settings, found[0])
    if as_json:
        print_json(receipt.as_dict())
    else:
        _print(receipt)


@app.command()
def resume(as_json: AsJson = False) -> None:
    """Continue the erasures that were interrupted."""
    from truelog.forgetting import forget as forgetting
    from truelog.storage.audit_trail import by_hand

    settings = Settings()
    _tell(settings, forgetting.resume(settings, by_hand()), as_json)


@app.command()
def adopt(as_json: AsJson = False) -> None:
    """After a restore from a backup: add the erasures that the database lacks from the log, and perform them again."""
    from truelog.forgetting import forget as forgetting
    from truelog.storage.audit_trail import by_hand

    settings = Settings()
    _tell(settings, forgetting.adopt(settings, by_hand()), as_json)


def lacking(erasures: int) -> str:
    """What to say of erasures that a restored database lacks."""
    return (
        f"this database was restored, and lacks {erasures:,} erasures of the log, so API, relay and notifier hold all "
        "views back: run `truelog archive adopt`"
    )


def unfinished(erasures: int) -> str:
    """What to say of unfinished erasures."""
    return (
        f"{erasures:,} erasures are unfinished, and readers may see people who are to be forgotten: "
        "run `truelog erasures resume` before they do"
    )


def _tell(settings: Settings, done: "Sequence[Forgotten]", as_json: bool) -> None:
    from truelog.forgetting.receipt import receipt_of

    receipts = [receipt_of(settings, each.entry) for each in done]
    if as_json:
        rows = [r.as_dict() | {"changed_rows": each.changed} for r, each in zip(receipts, done, strict=True)]
        print_json({"erasures": rows})
        return
    if not done:
        say("no erasure is unfinished")
    for receipt, each in zip(receipts, done, strict=True):
        _print(receipt)
        for view, changed in sorted(each.changed.items()):
            say(f"{view}: {changed:,} rows changed")


def _print(receipt: "Receipt") -> None:
    plain = receipt.as_dict()
    say(f"erasure {plain['id']}, recorded {plain['recorded_at']}, last finished step: {plain['step']}")
    for topic, records in plain["records"].items():
        say(f"erased in the archive: {records:,} records of {topic}")
    for topic in plain["deleted_outputs"]:
        say(f"deleted: Kafka's topic {topic}, an output that no view wrote")
    say("not erased by this command:" if receipt.entry.is_finished else "not finished: run `truelog erasures resume`")
    for line in receipt.rest:
        say(f"  {line}")


def _named(subjects: "Sequence[str]") -> "list[Named]":
    named = [(field, value) for field, separator, value in (each.partition("=") for each in subjects) if separator]
    if len(named) != len(subjects) or not all(field and value for field, value in named):
        raise typer.BadParameter("write a subject as FIELD=VALUE, for example person_id=42")
    return named
