"""`truelog tail`: the records of a topic, or the changes of a view, as they come."""

from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from typing import Annotated, Any

import typer

from truelog.cli.output import AsJson, print_json, say
from truelog.storage import exact_json
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings

What = Annotated[str, typer.Argument(metavar="TOPIC|VIEW", help="A view that declares `publish`, or a topic.")]
Where = Annotated[list[str] | None, typer.Option(help="With a view: the value of a key column, such as reader_id=bob.")]
Beginning = Annotated[bool, typer.Option("--from-beginning", help="With a topic: begin with its first record.")]
Number = Annotated[int | None, typer.Option("-n", "--number", min=1, help="End after so many lines.")]

_NO_API = (
    "the settings here lack the address of the API, or the key of a reader: set TRUELOG_API_HOST, TRUELOG_API_PORT and "
    "TRUELOG_READER_KEY; `truelog key add NAME --role reader` makes a key"
)


def tail(
    what: What, where: Where = None, from_beginning: Beginning = False, number: Number = None, as_json: AsJson = False
) -> None:
    """Print the rows of a view and then each change of them, or the records of a topic, until Ctrl-C.

    With --json, each line is an object. A row that vanished is null.
    """
    lines = _lines(Settings(), what, where or [], from_beginning)
    try:
        for line in islice(lines, number):
            if as_json:
                print_json(line)
            else:
                say("  ".join(f"{name} {exact_json.text(value)}" for name, value in line.items()))
    except KeyboardInterrupt:
        raise typer.Exit from None


def _lines(settings: Settings, what: str, where: list[str], from_beginning: bool) -> Iterator[dict[str, Any]]:
    from truelog.log import topics
    from truelog.views import catalogue

    if what in catalogue.view_names(settings.views_folder):
        if from_beginning:
            raise typer.BadParameter("a view begins with its rows; --from-beginning is for topics")
        return _changes(settings, what, where)
    if where:
        raise typer.BadParameter(f"--where is for views, and {what} is not a view")
    if what not in topics.existing_topics(topics.client(settings)):
        raise typer.BadParameter(f"there is neither a view nor a topic {what}")
    return _records(settings, what, from_beginning)


def _changes(settings: Settings, view: str, where: list[str]) -> Iterator[dict[str, Any]]:
    from truelog.client.client import Client

    at, key = settings.address("api"), settings.reader_key.get_secret_value()
    if not at.port or not key:
        raise NotSetUp(_NO_API)
    with Client(api=f"http://{at.host}:{at.port}", reader_key=key) as client:
        for update in client.subscribe(view, where=where):
            for change in update.changes:
                yield {"number": update.number, "key": _exact(change.key), "row": _exact(change.row)}


def _exact(value: Any) -> Any:
    """The same value, with decimals that are printed as numbers with all their digits."""
    if isinstance(value, dict):
        return {name: _exact(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_exact(each) for each in value]
    return exact_json.Number(str(value)) if isinstance(value, Decimal) else value


def _records(settings: Settings, topic: str, from_beginning: bool) -> Iterator[dict[str, Any]]:
    from truelog.cli.topic_tail import follow

    for each in follow(settings, topic, from_beginning=from_beginning):
        yield {"partition": each.partition, "offset": each.offset, "key": each.key, "value": each.value}
