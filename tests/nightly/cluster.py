"""The processes of a Spark cluster authenticate with the secret from a private file, which no command line shows."""

import json
import subprocess
from pathlib import Path

from pydantic import SecretStr

from truelog.spark.java import pyspark_home
from truelog.spark.scratch import job_folder
from truelog.spark.submit import UMASK, job_environment, properties_file, submit_conf
from truelog.support.settings import Settings

SECRET = "5ec2e7" * 8
JOB = """
import contextlib, json, sys
import psutil
from truelog.spark.session import session
from truelog.support.settings import Settings

spark = session(Settings(), "cluster")
batches = []
frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
rows = lambda found: (yield from found)
writer = frame.writeStream.foreachBatch(lambda batch, _: batches.append(batch.mapInArrow(rows, batch.schema).count()))
writer.option("checkpointLocation", sys.argv[1] + "/checkpoint").trigger(once=True).start().awaitTermination()
commands = []
for process in psutil.process_iter():
    with contextlib.suppress(psutil.NoSuchProcess):  # it ended, or it is a zombie
        commands.append(" ".join(process.cmdline()))
json.dump({"batches": batches, "commands": commands}, open(sys.argv[1] + "/found.json", "w"))
spark.stop()
"""


def test_a_cluster_authenticates_with_a_secret_that_no_command_line_shows(
    settings: Settings, spark_home: Path, tmp_path: Path
) -> None:
    clustered = settings.model_copy(update={"spark_secret": SecretStr(SECRET)})
    (tmp_path / "job.py").write_text(JOB)
    with job_folder(clustered) as folder:
        private = properties_file(clustered)
        command = [str(pyspark_home() / "bin" / "spark-submit"), "--master", "local-cluster[1,1,1024]"]
        command += ["--properties-file", str(private)]
        command += [
            word for key, value in submit_conf(clustered, folder).items() for word in ("--conf", f"{key}={value}")
        ]
        ended = subprocess.run(
            [*command, str(tmp_path / "job.py"), str(tmp_path)],
            env=job_environment(clustered, folder) | {"SPARK_HOME": str(spark_home)},
            capture_output=True,
            text=True,
            check=False,
            umask=UMASK,
        )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]  # Python writes to Spark's output
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["batches"] == [10]
    assert [each for each in found["commands"] if "CoarseGrainedExecutorBackend" in each]
    assert not [each for each in found["commands"] if SECRET in each]
    assert SECRET in private.read_text()
    assert private.stat().st_mode & 0o077 == 0
    assert not folder.exists()
