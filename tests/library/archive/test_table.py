"""The archive's end positions come from a real catalog. If a service is down, the error contains its name."""

import pytest

from tests.beds.archived import drop_archive
from truelog.archive.table import archived_positions, ensure_table, open_catalog
from truelog.log.positions import Positions
from truelog.schema.loading.events import load_events
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

TOPIC, TOPIC_ID = "page_view", "first//life+"
DOWN = "archive: the catalog or the object store did not answer"


@pytest.fixture
def archived(platform: Settings) -> Settings:
    """A topic whose archive begins at offset 3 of the topic's first partition."""
    with open_catalog(platform) as catalog:
        drop_archive(catalog, TOPIC)
        ensure_table(catalog, load_events()[TOPIC], TOPIC_ID, {0: 3, 1: 0})
    return platform


def test_only_archived_topics_have_positions(archived: Settings) -> None:
    found = archived_positions(archived, [TOPIC, "never_archived"])
    assert found == Positions({TOPIC: {0: 3, 1: 0}}, {TOPIC: TOPIC_ID})


@pytest.mark.parametrize(
    "down", [{"database_port": 1}, {"s3_endpoint": "http://127.0.0.1:1"}], ids=lambda down: next(iter(down))
)
def test_a_service_that_is_down_is_named(archived: Settings, down: dict[str, object]) -> None:
    with pytest.raises(ServiceDown, match=DOWN):
        archived_positions(archived.model_copy(update=down), [TOPIC])
