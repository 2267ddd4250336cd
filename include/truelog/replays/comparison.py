"""The difference of a replay from the rows that readers of its view see, by key.

Production has gone on since. The result says how many records only one of both has counted.
"""

from psycopg import sql

from truelog.replays.store import SCHEMA, Replay
from truelog.storage.database import connect, read_value
from truelog.support.errors import BadInput
from truelog.support.settings import Settings
from truelog.versions.difference import Side, VersionDifference, difference_of
from truelog.views.catalogue import table_name

_POSITIONS = """
    SELECT t.key AS topic, p.key::integer AS partition,
        coalesce((r.begins -> t.key ->> p.key)::bigint, 0) AS first_offset, p.value::bigint AS next_offset
    FROM truelog.view_replay r CROSS JOIN LATERAL jsonb_each(r.ends) t CROSS JOIN LATERAL jsonb_each_text(t.value) p
    WHERE r.replay = {}
"""


def compare_with_production(settings: Settings, replay: Replay, limit: int) -> VersionDifference:
    """Compare with the version that readers see now, with at most `limit` differing rows as a sample.

    Raises:
        BadInput: the replay is not built, readers see no version of the view, or its key is another one.
    """
    if replay.built_at is None:
        cure = "Make it again." if replay.abandoned else "Wait until it is built."
        raise BadInput(f"The replay {replay.name} is {replay.state}. {cure}")
    with connect(settings) as connection:
        served = read_value(connection, "SELECT version FROM truelog.deployed WHERE view = %s", (replay.view,))
    if served is None:
        raise BadInput(f"Readers see no version of {replay.view}, so there is nothing to compare {replay.name} with.")
    copy = Side(
        replay.name,
        sql.Identifier(SCHEMA, replay.name),
        sql.Identifier(SCHEMA, table_name(replay.name, replay.version)),
        sql.SQL(_POSITIONS).format(sql.Literal(replay.name)),
    )
    return difference_of(settings, replay.view, Side.of_version(replay.view, served), copy, limit)
