"""What rules may name: the entities whose events they follow, and the columns of each event type.

An entity is what the events of a rule have in common, such as a customer. Each event type says which of its fields has
the entity's id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from truelog.support.errors import BadInput


@dataclass(frozen=True)
class EventSource:
    """What rules may know of an event type.

    entities: the field with the id of each entity.
    columns: the type of each column: `text`, `number` or `boolean`.
    known: the values of a field that rules see. Rules do not see an event with another value.
    longest: the longest time that a rule may need, by entity (`truelog.patterns.span`). Other entities have no limit.
    """

    entities: Mapping[str, str]
    columns: Mapping[str, str]
    known: Mapping[str, Sequence[str]] = field(default_factory=dict)
    longest: Mapping[str, str] = field(default_factory=dict)


Sources = Mapping[str, EventSource]  # by event type


def require_entity(sources: Sources, event_type: str, entity: str) -> None:
    """Require that events of this type belong to an entity.

    Raises:
        BadInput: names what is known.
    """
    if event_type not in sources:
        raise BadInput(f"rules cannot read {event_type}; they read {', '.join(sorted(sources))}")
    known = sources[event_type].entities
    if entity not in known:
        raise BadInput(f"{event_type} has no {entity}; it has {', '.join(sorted(known))}")
