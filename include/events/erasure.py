"""An erasure: a person must be forgotten. The platform writes the event, and a restored backup reads it."""

from pydantic import Field

from truelog import Event, Quality, Topic

# Compacted, and each erasure is a key of its own: Kafka keeps every one of them.
TOPIC = Topic(key="erasure", subject=(), partitions=1, retention="7 days", compacted=True, internal=True)
# Nobody may ask for months, and then many people at once.
QUALITY = Quality(volume=(0, 1e9), keys=(0, 1e9), drift=1.0)


class Erasure(Event):
    """The records below the ends that name one of the subjects are erased."""

    erasure: str = Field(max_length=36, description="The id of the erasure.")
    content: str = Field(
        description="The keyed hashes of the subjects, the fields that may name them, and the ends, as JSON text."
    )
    seal: str = Field(max_length=64, description="The keyed hash of the content, which only the platform can make.")
