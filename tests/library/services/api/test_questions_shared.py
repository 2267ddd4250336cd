"""A share of the readers gets another version: each key the same one in every answer, and its tokens with it."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from tests.library.services.api.asking import Asking, asking
from tests.library.versions.two_versions import FIRST, SECOND, TwoVersions, deploy_two
from truelog.forgetting.stored_texts import forget_reports
from truelog.history import past_question
from truelog.log.positions import Positions
from truelog.serving.reader_slot import reader_slot
from truelog.storage.api_key import Role, add_key
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.versions.cut_over import cut_over
from truelog.versions.share import share

SEARCHED = {"documents": "SELECT url, truelog.word_vector(url, 'A') AS document FROM {view}"}
PRESENT = dict(FIRST.present) | SEARCHED


@dataclass
class Shared:
    """An API with many keys, and a view with two versions, whose rows differ."""

    api: Asking
    versions: TwoVersions
    keys: dict[str, str]  # by name

    @property
    def path(self) -> str:
        return f"/views/{self.versions.name}"

    def give(self, percent: int) -> None:
        share(self.versions.settings, self.versions.name, 2, percent, doer="test")

    def due(self, percent: int) -> set[str]:
        return {name for name in self.keys if reader_slot(self.versions.name, name) < percent}

    def ordered(self) -> list[str]:
        """The names, the first reader of a growing share first."""
        return sorted(self.keys, key=lambda name: reader_slot(self.versions.name, name))

    def answers(self) -> dict[str, int]:
        """The version of each reader's answer. The rows are those of the version."""
        found = {}
        for name, key in self.keys.items():
            answer = self.api.get(f"{self.path}/rows", key)
            assert answer.status_code == 200, answer.text
            version = answer.json()["version"]
            assert answer.json()["rows"] == [{"url": "a", "views": version}, {"url": "b", "views": 10 + version}]
            found[name] = version
        return found


@pytest.fixture(scope="module")
def keyed(postgresql: Settings, deployed: Connection) -> Iterator[tuple[Asking, dict[str, str]]]:
    names = [f"shared-{uuid.uuid4().hex[:8]}" for _ in range(30)]
    keys = {name: add_key(deployed, name, Role.READER, "test") for name in names}
    with asking(postgresql) as api:
        yield api, keys


@pytest.fixture
def shared(postgresql: Settings, deployed: Connection, keyed: tuple[Asking, dict[str, str]]) -> Iterator[Shared]:
    made = deploy_two(postgresql, deployed, replace(SECOND, present=PRESENT), replace(FIRST, present=PRESENT))
    made.make_ready()
    for version in (1, 2):
        made.store(version, [("a", version), ("b", 10 + version)])
    yield Shared(keyed[0], made, keyed[1])
    made.forget()


def test_a_growing_share_only_adds_readers_and_a_cut_over_has_all(shared: Shared) -> None:
    assert set(shared.answers().values()) == {1}
    before: set[str] = set()
    for percent in (5, 30, 70, 100):
        shared.give(percent)
        found = {name for name, version in shared.answers().items() if version == 2}
        assert found == shared.due(percent)
        assert before <= found
        before = found
    for percent in (40, 0):
        shared.give(percent)
        assert {name for name, version in shared.answers().items() if version == 2} == shared.due(percent)
    shared.give(20)
    cut_over(shared.versions.settings, shared.versions.name, doer="test")
    assert set(shared.answers().values()) == {2}


def test_a_reader_keeps_its_version_while_the_share_changes_for_others(shared: Shared) -> None:
    names = shared.ordered()
    first, last = shared.keys[names[0]], shared.keys[names[-1]]
    lowest, highest = (reader_slot(shared.versions.name, names[each]) for each in (0, -1))
    shared.give(lowest + 1)
    for percent in (*range(lowest + 1, highest, 7), highest, lowest + 1):
        shared.give(percent)
        for key, version in ((first, 2), (last, 1)):
            answer = shared.api.get(f"{shared.path}/rows", key)
            assert (answer.json()["version"], f'"version":{version}' in answer.headers["Truelog-Answer"]) == (
                version,
                True,
            )


def test_two_processes_that_knew_another_share_give_the_same_answer(shared: Shared) -> None:
    """Whatever each has kept of the view a moment ago."""
    with asking(shared.versions.settings) as other:
        for percent in (0, 100, 0, 100):
            shared.give(percent)
            for api in (shared.api, other):
                key = next(iter(shared.keys.values()))
                assert api.get(f"{shared.path}/rows", key).json()["version"] == (2 if percent else 1)


def test_every_route_answers_from_the_version_of_the_key_and_tokens_follow_it(shared: Shared) -> None:
    names = shared.ordered()
    shared.give(50)
    for name in (names[0], names[-1]):
        key, version = shared.keys[name], 2 if name == names[0] else 1
        made = shared.api.request("POST", "/tokens", key, json={"view": shared.versions.name, "key": {"url": "a"}})
        answers = [shared.api.get(f"{shared.path}/rows", credential) for credential in (key, made.json()["token"])]
        answers += [shared.api.get(f"{shared.path}{rest}", key) for rest in ("", "/relations/busy")]
        answers.append(shared.api.get(f"/searches/{shared.versions.name}", key, words="a"))
        assert [each.json()["version"] for each in answers] == [version] * 5
        [of_view] = [
            each for each in shared.api.get("/views", key).json()["views"] if each["view"] == shared.versions.name
        ]
        assert of_view["version"] == version
        for pinned in (1, 2):
            answer = shared.api.get(f"{shared.path}/rows", key, version=pinned)
            assert answer.json()["version"] == pinned


def test_the_answer_says_how_fresh_the_shared_version_is(shared: Shared) -> None:
    versions = shared.versions
    key = shared.keys[shared.ordered()[0]]
    shared.give(50)
    said = shared.api.get(f"{shared.path}/rows", key).json()
    assert said["reason"] == f"{versions.application} is not running"
    versions.reach(1, 7)
    shared.api.questions._reads._fresh_until = 0.0
    others = shared.api.get(f"{shared.path}/rows", shared.keys[shared.ordered()[-1]]).json()
    assert (others["version"], others["positions"]) == (1, {"page_view": {"0": 7}})
    said = shared.api.get(f"{shared.path}/rows", key).json()
    assert (said["version"], said["positions"], said["as_of"]) == (2, {"page_view": {"0": 5}}, None)


def test_what_a_client_keeps_of_one_version_is_not_taken_for_the_other(shared: Shared) -> None:
    """Not the entity tag, nor a cursor, nor the position of a token."""
    key = next(iter(shared.keys.values()))
    rows = f"{shared.path}/rows"
    for version in (1, 2):
        shared.versions.store(version, [("a", 1), ("b", 2)])
    first = shared.api.get(rows, key, limit=1)
    known = {"If-None-Match": shared.api.get(rows, key).headers["ETag"]}
    assert shared.api.get(rows, key, known).status_code == 304
    shared.give(100)
    assert shared.api.get(rows, key, known).status_code == 200, "equal rows of another version"
    moved = shared.api.get(rows, key, limit=1, cursor=first.json()["next"])
    assert (moved.status_code, moved.json()["type"]) == (409, "urn:truelog:problem:moved")
    going = shared.api.get(rows, key, limit=1, cursor=first.json()["next"], moving="true").json()
    assert (going["version"], going["rows"]) == (2, [{"url": "b", "views": 2}])

    shared.versions.reach(1, 9)
    wanted = Positions({"page_view": {0: 8}}, {"page_view": "an-id"}).as_token()
    late = shared.api.get(rows, key, at_least=wanted, wait=0)
    assert (late.status_code, late.json()["behind"]) == (409, {"page_view": {"0": 3}})
    shared.versions.reach(2, 9)
    assert shared.api.get(rows, key, at_least=wanted, wait=5).json()["version"] == 2
    walk = shared.api.get(rows, key, limit=1).json()
    cut_over(shared.versions.settings, shared.versions.name, doer="test")
    assert shared.api.get(rows, key, limit=1, cursor=walk["next"]).json()["rows"] == [{"url": "b", "views": 2}]


def test_a_walk_over_the_past_ends_when_its_key_gets_another_version(shared: Shared) -> None:
    """The question has not changed, so this is not an error of the client."""
    key, rows, versions = next(iter(shared.keys.values())), f"{shared.path}/rows", shared.versions
    past = {"as_of": "2026-01-01T08:00:00Z", "limit": "1"}
    shared.api.get(rows, key, **past)
    [asked] = past_question.waiting(versions.connection)
    said = {"version": 1, "positions": {}, "as_of": past["as_of"], "clock": None, "more": False}
    past_question.answer(versions.connection, asked, said, ['{"url":"a"}', '{"url":"b"}'])
    following = shared.api.get(rows, key, **past).json()["next"]
    assert shared.api.get(rows, key, **past, cursor=following).json()["rows"] == [{"url": "b"}]
    shared.give(100)
    assert shared.api.get(rows, key).json()["version"] == 2
    moved = shared.api.get(rows, key, **past, cursor=following)
    assert (moved.status_code, moved.json()["type"]) == (409, "urn:truelog:problem:moved")
    for other in ({"as_of": "2026-01-01T07:00:00Z"}, {"where": "url=a"}, {"version": 2}):
        assert shared.api.get(rows, key, **{**past, **other}, cursor=following).status_code == 422
    assert past_question.waiting(versions.connection) == []
    forget_reports(versions.settings, versions.connection, [versions.name])


def test_a_walk_ends_when_its_key_gets_a_version_with_another_key(
    postgresql: Settings, deployed: Connection, keyed: tuple[Asking, dict[str, str]]
) -> None:
    """The place of its last row means nothing there."""
    versions = deploy_two(postgresql, deployed, replace(SECOND, key=("url", "waited")))
    shared = Shared(keyed[0], versions, keyed[1])
    versions.store(1, [("a", 1), ("b", 2)])
    versions.store(2, [("a", 5, 1), ("b", 5, 2)])
    versions.reach(2, 5)
    versions.run_both()
    versions.prove(2)
    key, rows = next(iter(shared.keys.values())), f"{shared.path}/rows"
    following = shared.api.get(rows, key, limit=1).json()["next"]
    shared.give(100)
    for moving in ("false", "true"):
        moved = shared.api.get(rows, key, limit=1, cursor=following, moving=moving)
        assert (moved.status_code, moved.json()["type"]) == (409, "urn:truelog:problem:moved")
    assert shared.api.get(rows, key, limit=1, cursor=following, where="url=a").status_code == 422
    versions.forget()
