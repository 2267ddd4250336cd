"""The bucket is created in the region of the settings."""

import boto3
import pytest
from botocore.stub import Stubber

from runtime import s3
from truelog.support.settings import Settings


@pytest.mark.parametrize(
    ("region", "more"),
    [
        ("us-east-1", {}),
        ("", {}),
        ("eu-central-1", {"CreateBucketConfiguration": {"LocationConstraint": "eu-central-1"}}),
    ],
)
def test_the_request_names_each_region_but_the_first(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, region: str, more: dict[str, object]
) -> None:
    client = boto3.client("s3", region_name=region or "us-east-1", aws_access_key_id="k", aws_secret_access_key="s")
    monkeypatch.setattr("truelog.storage.bucket.s3_client", lambda *_: client)
    with Stubber(client) as stubber:
        stubber.add_client_error("head_bucket", http_status_code=404)
        stubber.add_response("create_bucket", {}, {"Bucket": settings.s3_bucket} | more)
        s3.prepare(settings.model_copy(update={"s3_region": region}))
        stubber.assert_no_pending_responses()
