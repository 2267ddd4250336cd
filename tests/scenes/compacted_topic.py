"""The topic of a captured table after Kafka has compacted it, and the view that its records alone give."""

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.deadline import deadline, until
from tests.scenes.batch import Batch
from tests.scenes.captured_shop import NAME, CapturedShop
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.log import records, topics
from truelog.log.kafka_reader import messages
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings
from truelog.tables import deploy
from truelog.tables.compiler import compile_view
from truelog.views import catalogue

FAST = {"min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"}
MESSAGE = "SELECT pg_logical_emit_message(true, 'truelog', '')"


def compact(shop: CapturedShop) -> None:
    """Let Kafka compact the topic. Below its present end, one record of each key is left."""
    settings, end = shop.settings, shop.end()
    _configure(settings, AlterConfigOpType.SET)

    def compacted() -> None:
        shop.run(MESSAGE)  # its record begins another segment, because Kafka compacts only closed ones
        if next(messages(settings, NAME, 0, 0, end)).offset() == 0:
            raise ServiceDown("Kafka still has the first record")

    until(compacted, 90, "the compaction")
    _configure(settings, AlterConfigOpType.DELETE)
    topics.sync_topics(settings, {NAME: shop.event_type})
    keys = [each.key() for each in messages(settings, NAME, 0, 0, end)]
    assert len(keys) == len(set(keys)) < end


def _configure(settings: Settings, operation: AlterConfigOpType) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=operation) for name, value in FAST.items()]
    resource = ConfigResource(ResourceType.TOPIC, NAME, incremental_configs=entries)
    broker = topics.client(settings, KafkaUser.ADMIN)
    broker.incremental_alter_configs([resource])[resource].result(deadline(30))


def view_of_topic(batch: Batch, settings: Settings) -> str:
    """Build the view of the table from the records that its topic has now, and return the name of the new view."""
    name, context = f"{NAME}_of_topic", batch.context
    types = {NAME: context.event_types[NAME]}
    schemas = {NAME: records.schema(types[NAME])}
    compiled = compile_view(batch.spark, name, catalogue.load_view(NAME, settings.views_folder), schemas)
    begin, end = topics.earliest_offsets(settings, [NAME]), topics.end_offsets(settings, [NAME])
    decoded = records.read(batch.spark, settings, types, begin.ranges_to(end))
    with connect(settings, autocommit=True) as connection:
        deploy.deploy_table(connection, compiled)
        whole = EventRange(records.events(decoded, types), begin, end)
        BatchApplier(settings).apply(connection, compiled, whole, begin)
    return name
