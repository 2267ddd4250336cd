"""Refuses to build a wheel: Truelog is source-only, as docs/decisions/021-source-only.md explains."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SourceOnly(BuildHookInterface):
    """Lets an editable install pass and refuses every other wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            raise RuntimeError(
                "Truelog has no wheel: it runs from its source tree, which holds its DAGs, views, event types and lock."
                " Clone the repository and run `make install`."
            )
