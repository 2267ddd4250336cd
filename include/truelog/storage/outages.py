"""What the clients of PostgreSQL, Kafka, S3 and the catalog raise while a service does not answer."""

from botocore.exceptions import BotoCoreError, ClientError
from sqlalchemy.exc import SQLAlchemyError

from truelog.support import wait

# PyArrow reports an outage of S3 as OSError, and boto3 as one of its own errors.
OUTAGES = (*wait.OUTAGES, SQLAlchemyError, OSError, BotoCoreError, ClientError)
