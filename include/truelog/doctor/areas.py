"""The areas that the doctor examines, in the order in which their troubles should be cured."""

from truelog.doctor.kafka import KAFKA
from truelog.doctor.machine import MACHINE
from truelog.doctor.object_store import OBJECT_STORE
from truelog.doctor.postgresql import POSTGRESQL

AREAS = (MACHINE, POSTGRESQL, OBJECT_STORE, KAFKA)
