"""The API, which answers questions of applications about views, and tells them their changes.

A new route is listed here. `application.py` gives it a function of `questions.py` or of `iceberg/catalog.py`, which
answers it.
"""

from truelog.services.declaration import HEALTH, Access, Bucket, Http, Route, Service
from truelog.storage.api_key import Role

VIEWS = Route("GET", "/views", Role.READER)
VIEW = Route("GET", "/views/{view}", Role.READER)
ROWS = Route("GET", "/views/{view}/rows", Role.READER)
RELATION = Route("GET", "/views/{view}/relations/{relation}", Role.READER)
CHANGES = Route("GET", "/views/{view}/changes", Role.READER)
TOKENS = Route("POST", "/tokens", Role.READER)
RATE_LIMIT = Route("GET", "/rate-limits/{address}", Role.READER)
SEARCH = Route("GET", "/searches/{view}", Role.READER)
OPENAPI = Route("GET", "/openapi.json", Role.READER)

# The archive as a catalog of Iceberg's REST protocol, whose clients append `/v1/…` to the address that they know.
CATALOG = "/iceberg/v1"
CATALOG_CONFIGURATION = Route("GET", f"{CATALOG}/config", Role.ARCHIVIST)
CATALOG_NAMESPACES = Route("GET", f"{CATALOG}/namespaces", Role.ARCHIVIST)
CATALOG_NAMESPACE = Route("GET", f"{CATALOG}/namespaces/{{namespace}}", Role.ARCHIVIST)
CATALOG_TABLES = Route("GET", f"{CATALOG}/namespaces/{{namespace}}/tables", Role.ARCHIVIST)
CATALOG_TABLE = Route("GET", f"{CATALOG}/namespaces/{{namespace}}/tables/{{table}}", Role.ARCHIVIST)
OF_CATALOG = (CATALOG_CONFIGURATION, CATALOG_NAMESPACES, CATALOG_NAMESPACE, CATALOG_TABLES, CATALOG_TABLE)

SCOPED = (ROWS, RELATION, CHANGES)  # a scoped token may ask these
ABOUT_ROWS = (*SCOPED, SEARCH)  # who asks these is a reader of the view

HTTP = Http(
    "API",
    18083,
    (VIEWS, VIEW, ROWS, RELATION, CHANGES, TOKENS, RATE_LIMIT, SEARCH, OPENAPI, *OF_CATALOG, HEALTH),
)
SERVICE = Service(
    name="api",
    module="truelog.services.api.service",
    after=("postgresql",),
    kafka=None,
    http=HTTP,
    secrets=("api_password", "api_token_secret", "spans_headers"),
    several=True,
    access=Access("api_service", Bucket.READ, reads_topics=False, administers_kafka=False),
)
