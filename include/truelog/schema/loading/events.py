"""The event types that the files of a folder declare."""

from inspect import get_annotations
from pathlib import Path
from types import ModuleType

from truelog.schema import change, declaration_files, event
from truelog.schema.event import Event, EventType, Topic
from truelog.schema.loading import declaration_module
from truelog.schema.quality import DEFAULTS
from truelog.support.errors import BadDeclaration

EVENTS = Path(__file__).parents[3] / "events"

_DECLARED = "__event_type__"  # the attribute of a module with the event type that was made of it

_ENVELOPE = {*Event.model_fields, "type"}  # `type` says in a request which event it is


def event_names(folder: Path = EVENTS) -> list[str]:
    """The names of the declared event types, taken from the file names without loading the files."""
    return declaration_files.declared_names(folder)


def load_events(folder: Path = EVENTS) -> dict[str, EventType]:
    """Every event type in the folder, by name. A broken file raises an error, so that no type disappears unnoticed."""
    types, broken = load_proposals(folder)
    if broken:
        raise BadDeclaration(" ".join(broken.values()))
    return types


def load_proposals(folder: Path = EVENTS) -> tuple[dict[str, EventType], dict[str, str]]:
    """The event types whose files can be loaded, by name, and the reason for each file that cannot."""
    types, broken = dict[str, EventType](), declaration_files.misnamed(folder)
    for name in event_names(folder):
        try:
            types[name] = load_event(folder / f"{name}.py")
        except BadDeclaration as bad:
            broken[name] = str(bad)
    return types, broken


def load_event(path: Path) -> EventType:
    """The event type that the file declares."""
    module = declaration_module.load_once(path, path.parent.name, event.__name__)
    if not isinstance(known := vars(module).get(_DECLARED), EventType):  # the monitor loads each file every two seconds
        known = vars(module)[_DECLARED] = _event_type(path, module)
    return known


def _event_type(path: Path, module: ModuleType) -> EventType:
    topic, quality = getattr(module, "TOPIC", None), getattr(module, "QUALITY", DEFAULTS)
    columns, rules = tuple(getattr(module, "DERIVED", ())), tuple(getattr(module, "REQUIRED", ()))
    limit = getattr(module, "FUTURE_LIMIT", event.FUTURE_LIMIT)
    models = [each for each in vars(module).values() if _is_event(each, module)]
    if not isinstance(topic, Topic) or len(models) != 1:
        raise BadDeclaration(f"{path}: declare `TOPIC = Topic(…)` and exactly one class deriving from Event.")
    try:
        _require_own_names(models[0])
        if topic.source is not None:
            return change.captured(path.stem, models[0], topic, quality, columns)
        if limit != event.FUTURE_LIMIT and not topic.internal:
            raise BadDeclaration("FUTURE_LIMIT is only for an internal topic, because producers' clocks may be wrong.")
        return EventType(path.stem, models[0], topic, quality, columns, rules, limit)
    except BadDeclaration as bad:
        raise BadDeclaration(f"{path}: {bad}") from None


def _is_event(value: object, module: ModuleType) -> bool:
    """True for an event class that the module itself declares; False for an imported class."""
    return isinstance(value, type) and issubclass(value, Event) and value.__module__ == module.__name__


def _require_own_names(model: type[Event]) -> None:
    """Refuse a field of the envelope in a file. A version that was registered with such a field remains in force."""
    for each in model.__mro__[: model.__mro__.index(Event)]:
        if taken := sorted(_ENVELOPE & get_annotations(each).keys()):
            raise BadDeclaration(
                f"{model.__name__}.{taken[0]}: each event already has a field of this name, which the platform itself "
                "reads; choose another name."
            )
