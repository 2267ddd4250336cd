"""The parts of files that are made from the declarations of Truelog's services are up to date."""

from runtime import made_files
from truelog.services import registry
from truelog.services.declaration import Service
from truelog.support.settings import PROJECT, KafkaUser


def test_every_made_part_is_up_to_date() -> None:
    for name in made_files.FILES:
        text = (PROJECT / name).read_text()
        assert made_files.written(text) == text, f"run `python -m runtime.made_files`, which writes {name}"


def test_every_kind_of_part_is_in_a_file() -> None:
    texts = "".join((PROJECT / name).read_text() for name in made_files.FILES)
    assert [name for name in made_files._PARTS if f" Begin {name} (" not in texts] == []


def test_a_part_that_differs_is_written_again_and_the_rest_remains() -> None:
    text = (PROJECT / "docker-compose.yml").read_text()
    changed = text.replace("truelog.services.collector.service", "elsewhere")
    assert changed != text
    assert made_files.written(f"# mine\n{changed}# mine\n") == f"# mine\n{text}# mine\n"


def test_services_are_declared_after_the_services_that_they_need() -> None:
    seen = {"postgresql", "kafka", "s3"}
    for service in registry.SERVICES:
        assert set(service.after) <= seen
        seen.add(service.name)


def test_no_service_uses_kafka_as_the_superuser() -> None:
    principals: dict[Service, KafkaUser | None] = {each: each.kafka for each in registry.SERVICES}
    assert KafkaUser.ADMIN not in principals.values()
