"""`truelog dead-letters list`, `show` and `replay`: bad events, and sending them again when they are valid."""

import base64
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE

from truelog.cli.output import AsJson, Sheet, print_json, progress, say
from truelog.cli.times import past_time
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.dead_letters.ledger import Reservation
    from truelog.dead_letters.store import DeadLetter, LetterFilter

TypeName = Annotated[
    str | None, typer.Option("--type", metavar="NAME", help="Only events that name this type, even if it is unknown.")
]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only if the field or the reason contains this text.")
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Only later events: 2h, 7d or 2026-11-22T10:00:00Z.")
]
Before = Annotated[
    str | None, typer.Option(metavar="CURSOR", help="Continue a list after its last dead letter. A list prints this.")
]
Place = Annotated[
    str, typer.Argument(metavar="PARTITION:OFFSET", help="The place, as `truelog dead-letters list` shows.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would be sent.")]

_PAGE = 50  # dead letters in a list
_REASONS_SHOWN = 20

app = typer.Typer(help="Bad events: list them, show one, and send the events that are valid now.", no_args_is_help=True)


@app.command("list")
def list_letters(
    type_name: TypeName = None,
    reason: Reason = None,
    since: Since = None,
    before: Before = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first, from the archive and the log."""
    from truelog.dead_letters import ledger as replay_ledger
    from truelog.dead_letters import store as dead_letter_store
    from truelog.storage.database import connect

    settings = Settings()
    chosen, cursor = _filter(type_name, reason, since), _cursor(before)
    letters = dead_letter_store.LetterStore(settings).newest(chosen, _PAGE + 1, cursor)
    shown, more = letters[:_PAGE], len(letters) > _PAGE
    with connect(settings) as connection:
        sent = replay_ledger.find_reservations(connection, [letter.at for letter in shown])
    following = dead_letter_store.cursor(shown[-1]) if more else None
    if as_json:
        rows = [_summary(letter, sent.get(letter.at)) for letter in shown]
        print_json({"dead_letters": rows, "next": following})
        return
    table = Sheet("place", "received (UTC)", "type", "reason", "sent to", box=SIMPLE, padding=(0, 1, 0, 0))
    for letter in shown:
        row = _summary(letter, sent.get(letter.at))
        received = f"{letter.received_at:%Y-%m-%d %H:%M:%S}"
        cells = (row["place"], received, letter.event_type or "", f"{letter.field}: {letter.reason}", row["sent_to"])
        table.add_row(*(_printable(cell or "") for cell in cells))
    table.show()
    if following:
        say(f"For older dead letters, add --before {following}")


@app.command()
def show(place: Place, as_json: AsJson = False) -> None:
    """Show one dead letter with its bytes, and whether the event is valid now."""
    from truelog.control import event_registry
    from truelog.dead_letters import ledger as replay_ledger
    from truelog.dead_letters import replay as dead_letter_replay
    from truelog.dead_letters import store as dead_letter_store
    from truelog.sources.collector.classifier import Defect
    from truelog.storage.database import connect

    settings = Settings()
    partition, offset = _place(place)
    letter = dead_letter_store.LetterStore(settings).find(partition, offset)
    if letter is None:
        raise typer.BadParameter(f"there is no dead letter at {place}; `truelog dead-letters list` shows the places")
    judged = dead_letter_replay.judge(event_registry.event_types(settings), letter)
    with connect(settings) as connection:
        sent = replay_ledger.find_reservations(connection, [letter.at]).get(letter.at)
    answer = _summary(letter, sent) | {
        "valid_now": not isinstance(judged, Defect),
        "reason_now": f"{judged.field}: {judged.reason}" if isinstance(judged, Defect) else None,
        "text": _printable(letter.raw.decode("utf-8", "surrogateescape")),
    }
    if as_json:
        print_json(answer | {"raw": base64.b64encode(letter.raw).decode()})
        return
    for name, value in answer.items():
        say(f"{name + ':':<13} {value if name == 'text' else _printable(str(value))}")


@app.command()
def replay(
    type_name: TypeName = None,
    reason: Reason = None,
    since: Since = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Send the dead letters that are valid now. Each is sent once, however often you run this command."""
    from truelog.control import event_registry
    from truelog.dead_letters import replay as dead_letter_replay
    from truelog.dead_letters.store import LetterStore
    from truelog.storage.audit_trail import by_hand

    settings, chosen = Settings(), _filter(type_name, reason, since)
    types = event_registry.confirmed_types(settings)  # not the files: the log judges by the registered versions
    store = LetterStore(settings)
    with progress("dead letters", store.count_records(chosen.since)) as done:
        if dry_run:
            result = dead_letter_replay.preview(settings, types, store.read(chosen, done))
        else:
            result = dead_letter_replay.replay(settings, types, store.read(chosen, done), by_hand())
    if as_json:
        print_json(vars(result) | {"dry_run": dry_run})
        return
    say(f"{'would be sent' if dry_run else 'sent'}: {result.sent:,}")
    say(f"already sent: {result.already_sent:,}")
    _print_reasons("still invalid", result.invalid)
    _print_reasons("skipped", result.skipped)


def _print_reasons(title: str, reasons: Counter[str]) -> None:
    say(f"{title}: {reasons.total():,}")
    for reason, count in reasons.most_common(_REASONS_SHOWN):
        say(f"  {count:,}  {_printable(reason)}")
    if len(reasons) > _REASONS_SHOWN:
        say(f"  and {len(reasons) - _REASONS_SHOWN:,} other reasons")


def _summary(letter: "DeadLetter", sent: "Reservation | None") -> dict[str, Any]:
    unsent = None if sent is None else "unconfirmed; the next replay finds out"
    return {
        "place": f"{letter.at.partition}:{letter.at.offset}",
        "topic_id": letter.at.topic_id,
        "received_at": letter.received_at,
        "type": letter.event_type,
        "field": letter.field,
        "reason": letter.reason,
        "sender": letter.sender,
        "sent_to": "{} {}:{}".format(sent.topic, *sent.place) if sent and sent.place else unsent,
    }


def _filter(event_type: str | None, reason: str | None, since: str | None) -> "LetterFilter":
    from truelog.dead_letters.store import LetterFilter

    return LetterFilter(event_type, reason, past_time(since) if since else None)


def _place(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()) or max(len(partition), len(offset)) > 18:
        raise typer.BadParameter(f"{text!r}: write PARTITION:OFFSET, as `truelog dead-letters list` shows it")
    return int(partition), int(offset)


def _cursor(text: str | None) -> Any:
    from truelog.dead_letters import store as dead_letter_store
    from truelog.support.errors import BadInput

    try:
        return dead_letter_store.parse_cursor(text) if text else None
    except BadInput as error:
        raise typer.BadParameter(str(error)) from error


def _printable(text: str) -> str:
    """The text on one line, without characters that could control a terminal. Backslashes are doubled."""
    return "".join(char if char.isprintable() and char != "\\" else _escape(char) for char in text)


def _escape(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()
