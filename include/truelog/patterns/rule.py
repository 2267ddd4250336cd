"""Rule: a declared pattern of events, as data.

A rule is a JSON object with the fields of `Declared`. `check` compiles it against what rules may name. The result
travels to executors.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from pydantic import Field as Declaration

from truelog.patterns import expression as expressions
from truelog.patterns import grammar
from truelog.patterns.catalogue import Sources, require_entity
from truelog.patterns.evaluate import Evaluator, Slots, evaluator, fields_of
from truelog.patterns.expression import BOOLEAN, Expression, Scope
from truelog.patterns.program import Instruction, Reach, compile_tree, least_events, reach
from truelog.patterns.span import spans_of
from truelog.support.durations import seconds
from truelog.support.errors import BadDeclaration, BadInput

MOST_BYTES = 16_384  # of a rule as JSON
_MOST_STEPS, _MOST_SHOWN, _MOST_MARKS = 20, 20, 4
ABSENT = "absent"  # how errors and conditions call the event that must not come
_MICROS = 1_000_000
_LONGEST = 366 * 86_400  # seconds of a duration

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
Duration = Annotated[str, Declaration(examples=["10 minutes"], description="A number and a unit, up to a year.")]
_T = TypeVar("_T")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TooLong(BadInput):
    """The rule called `name` lasts longer than its entity allows, and has no other error."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class DeclaredStep(_Strict):
    """An event that a match contains."""

    on: str = Declaration(description="The event type.")
    where: str = Declaration("true", description="A SQL expression that is true for the event.")
    gap: Duration | None = Declaration(None, description="The longest time since the event before it in the match.")


class DeclaredAbsence(_Strict):
    """An event that must not come after the last step, until the end of `within` or for the time `until`."""

    on: str = Declaration(description="The event type.")
    where: str = Declaration("true", description="A SQL expression that is true for the event.")
    until: Duration | None = Declaration(None, description="How long after the last event of the match.")


class Declared(_Strict):
    """A rule."""

    rule: Name = Declaration(description="The rule's name.")
    by: str = Declaration(description="The entity whose events the rule follows.")
    pattern: str = Declaration(description="The order of the steps.", examples=["failed{5,} .. paid"])
    within: Duration = Declaration(description="The longest time from the first event of a match to the last.")
    steps: dict[str, DeclaredStep] = Declaration(min_length=1, max_length=_MOST_STEPS)
    absent: DeclaredAbsence | None = None
    after: Literal["past_last", "next"] = Declaration(
        "past_last", description="Where the search goes on after a match: past its last event, or at its second event."
    )
    final: bool = Declaration(False, description="Whether a match is shown only when no event in time can change it.")
    late_after: Duration = Declaration(
        "1 minute", description="An event that reaches the log later than this after its time is late."
    )
    show: dict[Name, str] = Declaration(
        default_factory=dict, max_length=_MOST_SHOWN, description="The columns that a match shows, as SQL expressions."
    )


@dataclass(frozen=True)
class Condition:
    """Which events fit a step."""

    event_type: str
    where: Expression
    gap: int | None = None  # microseconds

    @cached_property
    def is_alone(self) -> bool:
        """Whether the condition depends only on the event and those before it, not on the match."""
        return all(field.step is None for field in fields_of(self.where))


@dataclass(frozen=True)
class Absence:
    """Which events undo a match, and for how long."""

    condition: Condition
    until: int | None  # microseconds after the last event of the match; None: until the end of `within`


@dataclass(frozen=True)
class Rule:
    """A rule that has been checked. Durations are in microseconds.

    least: the fewest events of a match.
    slots: the events of a match that conditions refer to.
    """

    name: str
    entity: str
    program: tuple[Instruction, ...]
    least: int
    steps: Mapping[str, Condition]
    within: int
    absence: Absence | None
    is_past_last: bool
    is_final: bool
    late_after: int
    shown: Mapping[str, Expression]
    slots: Slots

    @cached_property
    def row_types(self) -> frozenset[str]:
        """The event types whose events are the rows that a pattern describes."""
        return frozenset(each.event_type for each in self.steps.values())

    @cached_property
    def tests(self) -> Mapping[str, Evaluator]:
        """The function of each step's condition. A process makes it once, and not for each group."""
        return {name: evaluator(each.where, self.slots) for name, each in self.steps.items()}

    @cached_property
    def event_types(self) -> frozenset[str]:
        """The event types that the rule reads."""
        return self.row_types | ({self.absence.condition.event_type} if self.absence else set())

    def reach(self, instruction: int) -> Reach:
        """Where a search gets from an instruction before it reads the next event."""
        if instruction not in self._reached:
            self._reached[instruction] = reach(self.program, instruction)
        return self._reached[instruction]

    @cached_property
    def _reached(self) -> dict[int, Reach]:
        return {}


def read(document: Any) -> Declared:
    """The declaration in a JSON document.

    Raises:
        BadInput: names the place in the document.
    """
    try:
        return Declared.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the rule"
        raise BadInput(f"{place}: {first['msg']}") from error


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a rule. `check` also compares a rule with what rules may name."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Declared.model_json_schema()}


def check(declared: Declared, sources: Sources) -> Rule:
    """The rule of a declaration, checked against what rules may name.

    Raises:
        TooLong: the rule lasts longer than its entity allows.
        BadInput: names the place in the rule.
    """
    if len(declared.model_dump_json().encode()) > MOST_BYTES:
        raise BadInput(f"the rule is longer than {MOST_BYTES:,} bytes as JSON")
    tree = at("pattern", lambda: grammar.parse(declared.pattern))
    _require_steps(declared, tree)
    checker = _Checker(declared, sources)
    steps = {name: checker.step(name, each) for name, each in declared.steps.items()}
    absence = None if declared.absent is None else checker.absence(declared.absent)
    rule = Rule(
        name=declared.rule,
        entity=declared.by,
        program=at("pattern", lambda: compile_tree(tree)),
        least=least_events(tree),
        steps=steps,
        within=_micros("within", declared.within),
        absence=absence,
        is_past_last=declared.after == "past_last",
        is_final=declared.final,
        late_after=_micros("late_after", declared.late_after),
        shown={name: checker.shown(name, text) for name, text in declared.show.items()},
        slots=_slots([*steps.values(), *([absence.condition] if absence else [])]),
    )
    _require_short(rule, sources)
    return rule


class _Checker:
    """Checks the parts of a rule. An error names the part."""

    def __init__(self, declared: Declared, sources: Sources) -> None:
        self.entity = declared.by
        self.sources = sources
        self.types = {name: each.on for name, each in declared.steps.items()}
        self.columns = {event_type: source.columns for event_type, source in sources.items()}

    def step(self, name: str, declared: DeclaredStep) -> Condition:
        place, scope = f"steps.{name}", Scope(name, self.types, self.columns)
        gap = None if declared.gap is None else _micros(f"{place}.gap", declared.gap)
        return Condition(declared.on, self.where(place, declared, scope), gap)

    def absence(self, declared: DeclaredAbsence) -> Absence:
        scope = Scope(ABSENT, {**self.types, ABSENT: declared.on}, self.columns)
        where = self.where(ABSENT, declared, scope)
        if any(field.back for field in fields_of(where)):
            raise BadInput(f"{ABSENT}.where: prev is not allowed there")
        until = None if declared.until is None else _micros(f"{ABSENT}.until", declared.until)
        return Absence(Condition(declared.on, where), until)

    def where(self, place: str, declared: DeclaredStep | DeclaredAbsence, scope: Scope) -> Expression:
        at(f"{place}.on", lambda: require_entity(self.sources, declared.on, self.entity))
        return at(f"{place}.where", lambda: expressions.parse(declared.where, scope, BOOLEAN))

    def shown(self, name: str, text: str) -> Expression:
        return at(f"show.{name}", lambda: expressions.parse(text, Scope(None, self.types, self.columns)))


def _slots(conditions: Iterable[Condition]) -> Slots:
    """The marks that conditions refer to."""
    fields = (field for each in conditions for field in fields_of(each.where))
    slots = tuple(dict.fromkeys((field.step, field.is_first) for field in fields if field.step is not None))
    if len(slots) > _MOST_MARKS:
        raise BadInput(f"steps: the conditions refer to more than {_MOST_MARKS} other steps")
    return slots


def _micros(place: str, duration: str) -> int:
    length = at(place, lambda: seconds(duration))
    if length > _LONGEST:
        raise BadInput(f"{place}: {duration} is longer than a year")
    return length * _MICROS


def at(place: str, read_part: Callable[[], _T]) -> _T:
    """What a part of a rule says; an error names its place."""
    try:
        return read_part()
    except (BadInput, BadDeclaration) as error:
        raise BadInput(f"{place}: {error}") from error


def _require_short(rule: Rule, sources: Sources) -> None:
    spans, until = spans_of(sources).get(rule.entity), rule.absence.until if rule.absence else None
    if spans is not None and rule.within + (until or 0) > spans.longest:
        named = next(each.longest[rule.entity] for each in sources.values() if rule.entity in each.longest)
        message = f"within: rules by {rule.entity} last at most {named}"
        raise TooLong(rule.name, message + (f", with {ABSENT}.until" if until else ""))


def _require_steps(declared: Declared, tree: grammar.Tree) -> None:
    if ABSENT in declared.steps:
        raise BadInput(f"steps.{ABSENT}: this name means the event that must not come; choose another")
    used = grammar.steps_of(tree)
    if missing := sorted(used - declared.steps.keys()):
        raise BadInput(f"pattern: no step is called {', '.join(missing)}")
    if unused := sorted(declared.steps.keys() - used):
        raise BadInput(f"steps.{unused[0]}: the pattern does not use this step")
