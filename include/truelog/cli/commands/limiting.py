"""`truelog limit`: whether an address may make another request, and the policies and blocks that decide it."""

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truelog.cli.output import AsJson, Exit, print_json, say
from truelog.cli.times import duration, past_time
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.limits.rate_answer import RateLimitAnswer

Ip = Annotated[str, typer.Argument(metavar="IP", help="An IPv4 or IPv6 address.")]
Address = Annotated[
    str, typer.Argument(metavar="IP|all", help="An address, or all addresses without their own policy.")
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="The time of the question: 10m for ten minutes ago, or a time."),
]
Most = Annotated[int, typer.Option("--requests", metavar="NUMBER", min=1, max=2**31 - 1, help="Requests in a window.")]
Window = Annotated[str, typer.Option(metavar="DURATION", help="10s to 1d, in whole tens of seconds.")]
Lasts = Annotated[
    str | None, typer.Option("--for", metavar="DURATION", help="For example 30m. Without it, until `unblock`.")
]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="Why the address is blocked.")]

app = typer.Typer(help="Rate limits: check an address, and change policies and blocks.", no_args_is_help=True)


@app.command()
def check(ip: Ip, at: At = None, as_json: AsJson = False) -> None:
    """Say whether an address may make another request. The answer is advisory: it is as old as it says.

    The exit code is 0 if the address may, and 1 if it may not.
    """
    from truelog.limits import rate_answer as rate_limit_answer
    from truelog.storage import db_snapshot

    address, time = _address(ip), past_time(at) if at else datetime.now(UTC)
    with db_snapshot.read_snapshot(Settings()) as connection:
        try:
            answer = rate_limit_answer.answer(connection, address, time)
        except OverflowError as error:
            raise typer.BadParameter(f"{at!r}: before this time, there was no window") from error
    if as_json:
        print_json(answer.as_dict())
    else:
        _show(answer)
    raise typer.Exit(Exit.FINE if answer.decision.allowed else Exit.DIFFERENT)


@app.command("set")
def set_policy(address: Address, most: Most, window: Window, as_json: AsJson = False) -> None:
    """Allow an address, or all addresses without a policy of their own, so many requests in a window."""
    from truelog.limits.rate import PANE

    length = duration(window)
    if length % PANE:
        raise typer.BadParameter(f"{window}: a window has whole tens of seconds, because requests are counted in tens")
    values = {"max_requests": most, "window_seconds": int(length.total_seconds())}
    _decide("rate_policy", _address(address, or_all=True), "set", values, as_json)


@app.command()
def remove(address: Address, as_json: AsJson = False) -> None:
    """Remove a policy. The policy for all addresses, or the default of 100 requests in an hour, applies again."""
    _decide("rate_policy", _address(address, or_all=True), "removed", {}, as_json)


@app.command()
def block(ip: Ip, lasts: Lasts = None, reason: Reason = None, as_json: AsJson = False) -> None:
    """Block an address, for some time or until it is unblocked."""
    try:
        until = datetime.now(UTC) + duration(lasts) if lasts else None
    except OverflowError as error:
        raise typer.BadParameter(f"{lasts!r}: this block would end after the year 9999") from error
    _decide("block", _address(ip), "blocked", {"until": until, "reason": reason}, as_json)


@app.command()
def unblock(ip: Ip, as_json: AsJson = False) -> None:
    """Unblock an address. Its policy still applies."""
    _decide("block", _address(ip), "unblocked", {}, as_json)


def _decide(topic: str, address: str, verb: str, values: dict[str, Any], as_json: bool) -> None:
    """Send the decision as an event, which the stream then applies."""
    from pydantic import ValidationError

    from truelog.control import event_registry
    from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
    from truelog.schema import record_validation
    from truelog.storage.audit_trail import by_hand
    from truelog.support.errors import NotSetUp

    settings = Settings()
    event_type = event_registry.event_types(settings).get(topic)
    if event_type is None:
        raise NotSetUp(f"the event type {topic} is not registered: see `truelog status`")
    envelope = {"event_id": str(uuid.uuid4()), "occurred_at": datetime.now(UTC)}
    fields = {"address": address, "verb": verb, "decided_by": by_hand(), **values}
    try:
        event = event_type.model.model_validate(envelope | fields)
    except ValidationError as error:
        field, why = record_validation.first_invalid(error)
        raise typer.BadParameter(f"{field}: {why}") from error
    with KafkaSender(settings, [topic]) as sender:
        sender.send(OutgoingRecord(topic, address, event.model_dump_json(exclude_none=True).encode()))
    if as_json:
        print_json(event.model_dump(exclude_none=True))
    else:
        say(f"{address} is {verb}: the decision is in the log, and applies when the stream has read it")


def _address(text: str, *, or_all: bool = False) -> str:
    from truelog.limits import rate as rate_limit

    if or_all and text == rate_limit.ALL:
        return text
    try:
        return rate_limit.canonical_address(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _show(answer: "RateLimitAnswer") -> None:
    from truelog.support.durations import in_words

    decision = answer.decision
    verdict = "may make another request" if decision.allowed else f"is refused by its {decision.why}"
    say(f"{answer.address} {verdict}" + (f": {answer.reason}" if answer.reason else ""))
    window = in_words(decision.policy.window_seconds)
    say(f"{decision.count:,} requests in {window}; the policy allows {decision.policy.max_requests:,}")
    if not decision.allowed:
        ends = f"on {decision.resets_at:%Y-%m-%d at %H:%M:%S} UTC" if decision.resets_at else "when it is unblocked"
        say(f"allowed again {ends}")
    age = "of unknown age" if answer.age is None else f"{in_words(answer.age)} old"
    say(f"advisory: the views are {age}")
