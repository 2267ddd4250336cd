"""After an outage of PostgreSQL, however long it was, the API answers soon."""

from tests.library.services.api.asking import Asking, asking
from tests.library.services.door import closed_door
from truelog.support.settings import Settings

PATHS = ("/health", "/rate-limits/203.0.113.9")  # by the two pools of connections
ANSWERED = {200, 404}  # there are no views here
LOOKS = 24  # for PostgreSQL, during the outage; by default, a pool would then pause for half a minute


def statuses(api: Asking) -> list[int]:
    return [api.get(path).status_code for path in PATHS]


def test_the_first_or_second_request_after_an_outage_is_answered(postgresql: Settings) -> None:
    with closed_door(postgresql) as door:
        door.is_open = True
        with asking(postgresql, database_host="127.0.0.1", database_port=door.port) as api:
            assert {*statuses(api)} <= ANSWERED
            door.close()
            while door.looks < LOOKS:
                assert statuses(api) == [503, 503]
            door.is_open = True
            assert all(ANSWERED.intersection(each) for each in zip(statuses(api), statuses(api), strict=True))
