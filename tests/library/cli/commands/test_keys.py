"""`truelog key`: keys are added, listed and revoked, and the audit trail records every change."""

import json
import uuid
from typing import Any

import pytest

from tests.builders.event_types import an_event_type
from tests.command import answer, truelog
from truelog.schema.loading.events import load_events
from truelog.storage import audit_trail
from truelog.storage.api_key import KeyRing, Page, Role
from truelog.storage.database import connect
from truelog.support.errors import RequestRefused
from truelog.support.settings import Settings

NAME = "shop"


@pytest.fixture
def platform_keys(postgresql: Settings) -> Settings:
    """A database with all event types that has no key of that name, not even one of an earlier test."""
    with connect(postgresql) as connection:
        for each in load_events().values():
            an_event_type(connection, each, uuid.uuid4().hex)
        connection.execute("DELETE FROM truelog.api_key WHERE name = %s", (NAME,))
        connection.execute("DELETE FROM truelog.operation WHERE subject = %s", (NAME,))
    return postgresql


def listed() -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in answer("key", "list")["keys"]}


def test_a_key_is_shown_once_and_opens_what_its_role_may(platform_keys: Settings) -> None:
    added = truelog("key", "add", NAME, "--role", "producer")
    assert added.returncode == 0, added.stderr
    [key] = added.stdout.splitlines()
    assert key.startswith(f"{NAME}.")
    assert key not in added.stderr
    ring = KeyRing(platform_keys)
    ring.load()
    assert ring.authorize(f"Bearer {key}", Role.PRODUCER).name == NAME
    with pytest.raises(RequestRefused, match="producer may not"):
        ring.authorize(f"Bearer {key}", Role.READER)
    entry = listed()[NAME]
    assert (entry["role"], entry["revoked_at"]) == ("producer", None)
    assert set(entry) == {"name", "role", "made_at", "revoked_at", "origins", "event_types"}
    secret = key.partition(".")[2]
    for shown in (truelog("key", "list"), truelog("key", "list", "--json")):
        assert NAME in shown.stdout
        assert secret not in shown.stdout + shown.stderr


def test_a_browsers_key_names_its_origins_and_event_types(platform_keys: Settings) -> None:
    origins, types = ("https://shop.example", "http://127.0.0.1:8000"), ("page_view", "like")
    options = [*(f"--origin={each}" for each in origins), *(f"--type={each}" for each in types)]
    key = answer("key", "add", NAME, "--role", "browser", *options)["key"]
    ring = KeyRing(platform_keys)
    ring.load()
    assert ring.authorize_page(key, origins[1]).page == Page(origins, types)
    with pytest.raises(RequestRefused, match="the key is for pages of https://"):
        ring.authorize_page(key, "https://stranger.example")
    for role in (Role.PRODUCER, Role.READER, Role.ADMIN):
        with pytest.raises(RequestRefused, match="the role browser may not"):
            ring.authorize(f"Bearer {key}", role)
    entry = listed()[NAME]
    assert (entry["origins"], entry["event_types"]) == (list(origins), list(types))
    assert "page_view like" in truelog("key", "list", COLUMNS="200").stdout


@pytest.mark.usefixtures("platform_keys")
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--role=browser"], "names its origins"),
        (["--role=browser", "--type=like"], "names its origins"),
        (["--role=producer", "--type=like", "--origin=https://a.example"], "and no other"),
        (["--role=browser", "--type=like", "--origin=a.example"], "not an origin"),
        (["--role=browser", "--type=ticks", "--origin=https://a.example"], "ticks: choose from"),
    ],
)
def test_a_key_that_permits_nothing_or_too_much_is_not_made(options: list[str], why: str) -> None:
    refused = truelog("key", "add", NAME, *options, COLUMNS="400")
    assert refused.returncode == 2
    assert why in refused.stderr
    assert NAME not in listed()


def test_a_revoked_key_opens_nothing_after_the_next_reload(platform_keys: Settings) -> None:
    key = answer("key", "add", NAME, "--role", "reader")["key"]
    ring = KeyRing(platform_keys)
    ring.load()
    revoked = answer("key", "revoke", NAME)
    assert (revoked["name"], revoked["role"]) == (NAME, "reader")
    ring.reload()
    with pytest.raises(RequestRefused, match="no such key"):
        ring.authorize(f"Bearer {key}", Role.READER)
    assert listed()[NAME]["revoked_at"] == revoked["revoked_at"]
    assert answer("key", "revoke", NAME) == revoked


def test_changes_of_keys_are_in_the_audit_trail(platform_keys: Settings) -> None:
    truelog("key", "add", NAME, "--role", "admin")
    truelog("key", "revoke", NAME)
    truelog("key", "revoke", NAME)
    with connect(platform_keys) as connection:
        found = [each for each in audit_trail.latest_operations(connection, 50) if each.subject == NAME]
    assert [(each.kind, each.about) for each in found] == [("key_revoke", ""), ("key_add", "role admin")]
    assert {each.doer for each in found} == {audit_trail.by_hand()}


@pytest.mark.usefixtures("platform_keys")
def test_bad_use_is_2_with_the_cure() -> None:
    unknown = truelog("key", "revoke", NAME, COLUMNS="200")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "There is no key named shop. `truelog key list` shows all keys." in unknown.stderr
    answer("key", "add", NAME, "--role", "reader")
    answer("key", "revoke", NAME)
    taken = truelog("key", "add", NAME, "--role", "reader", COLUMNS="200")
    assert (taken.returncode, taken.stdout) == (2, "")
    assert "Choose another name" in taken.stderr
    assert truelog("key", "add", "No Name", "--role", "reader").returncode == 2
    assert truelog("key", "add", "other", "--role", "nothing").returncode == 2
    assert truelog("key", "add", "other").returncode == 2


def test_the_keys_of_set_up_are_listed(platform_keys: Settings) -> None:
    assert {"producer", "reader", "admin"} <= set(listed())
    assert platform_keys.admin_key.get_secret_value() not in json.dumps(listed())
