"""Drops an Iceberg table with all its objects, and the catalog's entry last.

Only the catalog knows the objects. So a drop that fails or is killed leaves the entry, and the next drop goes on.
pyiceberg's own purge removes the entry first, and only warns of an object that stays.
"""

from contextlib import suppress

from pyiceberg.exceptions import NoSuchTableError

from truelog.archive.catalog_pointer import metadata_locations
from truelog.archive.table import open_catalog
from truelog.storage import bucket
from truelog.storage.database import Connection
from truelog.support.errors import ArchiveCorrupt
from truelog.support.settings import Settings


def drop_table(settings: Settings, connection: Connection, name: str) -> None:
    """Drop a table such as `bases.page_views_v1`, if it exists. To do it again is safe.

    A reader of the table fails, as soon as its files are gone.

    Raises:
        ServiceDown: S3 did not delete an object. The catalog still has the table.
        ArchiveCorrupt: the catalog names files outside this environment's warehouse. Nothing is deleted.
    """
    newest = metadata_locations(connection, [name]).get(name)  # the file itself may be gone, so no table is loaded
    if newest is None:
        return
    folder = _folder(settings, name, newest)
    others = [each for each in bucket.object_sizes(settings, folder) if each != newest]
    for portion in (others, [newest]):  # the newest metadata goes last: until then, the table loads
        bucket.delete_objects(bucket.s3_client(settings), settings.s3_bucket, portion)
    with open_catalog(settings) as catalog, suppress(NoSuchTableError):
        catalog.drop_table(name)


def _folder(settings: Settings, name: str, newest: str) -> str:
    """The table's folder, with a slash at the end: the name of another table may begin with this one's."""
    folder, metadata, _ = newest.rpartition("/metadata/")
    namespace, _, table = folder.removeprefix(f"{settings.warehouse}/").partition("/")
    if not (metadata and folder.startswith(f"{settings.warehouse}/") and namespace and table):
        raise ArchiveCorrupt(
            f"{name}: its metadata {newest} is not in a table's folder of {settings.warehouse}. "
            "Nothing was deleted. Is TRUELOG_S3_BUCKET the bucket in which the table was made?"
        )
    return f"{folder}/"
