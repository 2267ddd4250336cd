"""A namespace is the beginning of every name outside, and of no name of another environment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.library.support.setting_groups.conftest import Chosen
from truelog.support.errors import NotSetUp
from truelog.support.setting_groups.kafka import NAMESPACE
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
