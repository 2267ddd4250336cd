"""A frame without rows, for the plan of what is selected from it."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """A frame without rows. `createDataFrame([], schema)` takes longer, because it passes the rows through Python."""
    rows = spark.sparkContext._jsc.emptyRDD().rdd()
    return DataFrame(spark._jsparkSession.applySchemaToPythonRDD(rows, schema.json()), spark)
