"""The settings of versions of views and their cut-over (docs/versions.md)."""

from enum import StrEnum

from pydantic import PositiveFloat
from pydantic_settings import BaseSettings


class CutOver(StrEnum):
    """Who moves readers to a new version that is built and proved."""

    AUTOMATIC = "automatic"  # the DAG `cut_over`
    MANUAL = "manual"  # `truelog versions cut-over`


class VersionSettings(BaseSettings):
    """When readers move between versions. `truelog.support.settings` says where values come from."""

    cut_over: CutOver = CutOver.AUTOMATIC
    cut_over_proof_seconds: PositiveFloat = 3600.0  # the oldest comparison that proves a version
    cut_over_catch_up_seconds: PositiveFloat = 10.0  # how long a cut-over waits until the version has all records
    former_keep_seconds: PositiveFloat = 86_400.0  # how long the stream of the version before goes on, for the way back
