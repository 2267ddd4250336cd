"""The files of small batches: where they are, and when a batch is small enough for them.

A small batch is decoded in the application's own process, and staged by plans that are made once. A large batch is
decoded by Spark's tasks, and each view plans how to stage it. So is every batch on a cluster, where executors cannot
read the driver's files.
"""

import os
import shutil
import threading
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession

from truelog.log import range_reader
from truelog.log.positions import Range
from truelog.log.records import Columns, are_few
from truelog.schema.event import EventTypes
from truelog.spark.class_archive import is_local
from truelog.spark.scratch import process_folder
from truelog.spark.session import small_session
from truelog.support.settings import KafkaUser, Settings
from truelog.tables.compiled_view import CompiledView
from truelog.tables.staging import event_files
from truelog.tables.staging.event_files import EventFiles, FileFrames
from truelog.tables.staging.repeated_plans import RepeatedPlans

_SHARE_OF_FREE = 0.25  # because recent batches, and copies for late views, are in the same folder


class BatchFiles:
    """The files of one application's batches and the plans of its views, in a folder of the application."""

    def __init__(self, settings: Settings, spark: SparkSession, folder: Path) -> None:
        self.settings, self.folder, self.is_local = settings, folder, is_local(settings)
        self.spark, self.disk = small_session(spark), process_folder(settings) / "views"
        self.slots = threading.Semaphore(os.cpu_count() or 1)  # plans that run at the same time

    def are_for(self, ranges: Sequence[Range]) -> bool:
        """Whether a batch of these ranges of the log is small."""
        return self.is_local and are_few(ranges)

    def write(self, kept: ExitStack, types: EventTypes, ranges: Sequence[Range], needed: Columns) -> EventFiles | None:
        """Read and decode a batch. Its files are deleted when `kept` is closed.

        None if its few records are so long that their files could fill the memory, or the folder.

        Raises:
            ServiceDown: Kafka did not return some of the records.
        """
        read = range_reader.read(self.settings.kafka(KafkaUser.READER), ranges)
        most_bytes = min(event_files.MOST_BYTES, int(shutil.disk_usage(self.folder).free * _SHARE_OF_FREE))
        try:
            return event_files.write(self.new_folder(kept), read, types, needed, most_bytes)
        except event_files.TooLarge:
            return None

    def new_folder(self, kept: ExitStack) -> Path:
        """A folder for a batch's files. It is deleted when `kept` is closed."""
        folder = self.folder / uuid.uuid4().hex
        folder.mkdir(mode=0o700)
        kept.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def frames(self, files: EventFiles) -> FileFrames:
        """The events of a batch."""
        return FileFrames(self.spark, files.folder, files.schemas)

    def plans_of(self, compiled: CompiledView) -> RepeatedPlans:
        """Plans for small batches, for one worker of a view. A retired worker may still execute plans of its own."""
        name = f"{compiled.own.name}-{uuid.uuid4().hex}"
        folders = self.folder / "views" / name, self.disk / name
        return RepeatedPlans(self.spark, self.settings, *folders, slots=self.slots)
