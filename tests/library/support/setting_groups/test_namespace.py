"""A namespace is the beginning of every name outside, and of no name of another environment."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.library.support.setting_groups.conftest import Chosen
from truelog.support.errors import NotSetUp, ReadsOnly
from truelog.support.setting_groups.kafka import NAMESPACE, READS
from truelog.support.setting_groups.namespace import Names
from truelog.support.settings import KafkaUser

_namespaces = st.from_regex(r"[a-z][a-z0-9]{0,15}", fullmatch=True)
_events = st.from_regex(r"[a-z][a-z0-9_]{0,30}", fullmatch=True)
_topics = _events | st.builds("view.{}.v1".format, _events) | st.just("relay.places")


@given(st.just("") | _namespaces, _topics)
def test_a_name_comes_back_from_kafka(namespace: str, name: str) -> None:
    names = Names(namespace)
    assert names.name_of(names.topic_of(name)) == name


@given(_namespaces, _namespaces, _topics)
def test_no_environment_has_a_name_of_another(one: str, other: str, name: str) -> None:
    assert (Names(one).name_of(Names(other).topic_of(name)) is None) == (one != other)
    assert (Names(one).in_postgresql("api") == Names(other).in_postgresql("api")) == (one == other)


@given(_namespaces.filter(lambda each: each not in {"view", "relay"}), _topics)
def test_names_without_a_namespace_belong_to_no_namespace(namespace: str, name: str) -> None:
    assert Names(namespace).name_of(Names().topic_of(name)) is None


@given(_namespaces.filter(lambda each: each not in {"view", "relay"}), st.just("") | _namespaces, _topics)
def test_events_are_those_of_the_environment_that_is_read(own: str, other: str, name: str) -> None:
    assume(own != other)  # the settings refuse it
    names = Names(own, other)
    assert names.name_of(names.topic_of(name)) == name
    is_event = "." not in name
    assert names.topic_of(name) == Names(other if is_event else own).topic_of(name)
    assert names.name_of(Names(own if is_event else other).topic_of(name)) is None
    assert names.owns(names.topic_of(name)) == (not is_event)


@given(_namespaces, _namespaces)
def test_only_topics_without_a_dot_are_written_elsewhere(own: str, other: str) -> None:
    names = Names(own, other)
    assert names.own_topic("view.cart.v1") == f"{own}.view.cart.v1"
    with pytest.raises(ReadsOnly, match=f"{other}.page_view belongs to the environment {other}"):
        names.own_topic("page_view")


def test_the_environment_that_is_read_may_have_no_namespace(chosen: Chosen) -> None:
    settings = chosen(namespace="blue", reads_bucket="truelog")
    assert settings.names == Names("blue", "")
    assert settings.kafka(KafkaUser.READER)[READS] == ""
    with pytest.raises(ReadsOnly, match="a thing is a matter of the environment without a namespace"):
        settings.require_own_events("a thing")


@pytest.mark.parametrize(
    ("given_settings", "reason"),
    [
        ({"namespace": "blue", "reads_namespace": "red"}, "needs TRUELOG_READS_BUCKET"),
        ({"reads_namespace": "red", "reads_bucket": "red"}, "needs TRUELOG_NAMESPACE"),
        ({"namespace": "red", "reads_namespace": "red", "reads_bucket": "red"}, "name another environment"),
        ({"namespace": "blue", "reads_namespace": "Red", "reads_bucket": "red"}, "a namespace has 1 to 16"),
        ({"namespace": "blue", "reads_namespace": "red", "reads_bucket": "red", "capture": True}, "captured tables"),
    ],
)
def test_what_is_read_must_be_whole(chosen: Chosen, given_settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotSetUp, match=reason):
        chosen(**given_settings)


def test_an_environment_with_its_own_events_may_write_them(chosen: Chosen) -> None:
    settings = chosen(namespace="blue")
    settings.require_own_events("anything")
    assert READS not in settings.kafka(KafkaUser.READER)


@pytest.mark.parametrize("wrong", ["Shop", "1shop", "my-shop", "my_shop", "my.shop", "s" * 17, "truelog", "view", "pg"])
def test_a_namespace_has_a_form(chosen: Chosen, wrong: str) -> None:
    with pytest.raises(NotSetUp, match=r"namespace .*a namespace has 1 to 16 of a-z and 0-9"):
        chosen(namespace=wrong)


def test_without_a_namespace_no_client_hears_of_one(chosen: Chosen) -> None:
    settings = chosen()
    assert settings.names == Names("")
    assert NAMESPACE not in settings.kafka(KafkaUser.READER)
    assert "groupIdPrefix" not in settings.spark_kafka()


def test_spark_names_its_groups_after_the_environment(chosen: Chosen) -> None:
    assert chosen(namespace="shop").spark_kafka()["groupIdPrefix"] == "shop.spark-kafka-source"
