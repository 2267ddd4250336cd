"""The doctor writes and deletes an object of its own, and finds each planted fault of a real object store."""

from truelog.doctor import object_store as area
from truelog.doctor.object_store import OBJECT_STORE
from truelog.doctor.result import Outcome, Result
from truelog.storage.bucket import list_objects, s3_client
from truelog.support.settings import Settings


def examined(settings: Settings, **changes: object) -> dict[str, Result]:
    return {each.check: each for each in OBJECT_STORE.examine(settings.model_copy(update=changes))}


def test_a_sound_store_needs_no_cure_and_nothing_is_left(s3: Settings) -> None:
    found = examined(s3)
    assert {check: each.found for check, each in found.items() if each.outcome is not Outcome.FINE} == {}
    assert {"encryption", "rights", "conditional writes"} <= found.keys()
    assert list(list_objects(s3_client(s3), s3.s3_bucket, "doctor/")) == []


def test_a_bucket_that_does_not_exist_is_found(s3: Settings) -> None:
    found = examined(s3, s3_bucket="nowhere")["answers"]
    assert (found.outcome, "create the bucket" in found.cure) == (Outcome.FAILED, True)


def test_a_store_that_does_not_answer_is_found(s3: Settings) -> None:
    assert examined(s3, s3_endpoint="http://127.0.0.1:1")["answers"].outcome is Outcome.FAILED


def test_ignored_conditions_are_found(s3: Settings) -> None:
    """Without the object, the store writes although the test expects it to refuse."""
    client = s3_client(s3)
    found = area._conditions(OBJECT_STORE, client, s3.s3_bucket, "doctor/absent")
    client.delete_object(Bucket=s3.s3_bucket, Key="doctor/absent")
    assert (found.outcome, found.found) == (Outcome.FAILED, "If-None-Match is ignored")
