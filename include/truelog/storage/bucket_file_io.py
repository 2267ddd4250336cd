"""The files of the bucket for PyIceberg, which cannot tell PyArrow whose certificates to trust."""

from pyarrow.fs import FileSystem, S3FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from truelog.support.setting_groups.object_store import arrow_arguments


class BucketFileIO(PyArrowFileIO):
    """PyIceberg's own files, with the CA of the settings. The property `py-io-impl` names this class."""

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        return S3FileSystem(**arrow_arguments(self.properties))
