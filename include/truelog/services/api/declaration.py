"""The API, which answers questions of applications about views, and tells them their changes.

A new route is listed here. `application.py` gives it a function of `questions.py`, which answers it.
"""

from truelog.services.declaration import HEALTH, Http, Route, Service
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
SCOPED = (ROWS, RELATION, CHANGES)  # a scoped token may ask these
ABOUT_ROWS = (*SCOPED, SEARCH)  # who asks these is a reader of the view

HTTP = Http("API", 18083, (VIEWS, VIEW, ROWS, RELATION, CHANGES, TOKENS, RATE_LIMIT, SEARCH, OPENAPI, HEALTH))
SERVICE = Service(
    name="api",
    module="truelog.services.api.service",
    after=("postgresql",),
    kafka=None,
    http=HTTP,
)
