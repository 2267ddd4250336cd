"""Search hits: the events that stored searches find. `docs/searches.md` describes searches."""

from searches.sources import SOURCES
from truelog import Searches

VIEW = Searches(sources=SOURCES, keep="7 days", publish=True, owner="search", version=2)
