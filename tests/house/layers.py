"""The order of the library's packages. `docs/architecture.md` shows the same order."""

ORDER = (
    "support",
    "storage",
    "schema",
    "measures",
    "views",
    "log",
    "tables",
    "control",
    "kernel",
    "archive",
    "spark",
    "apps",
    "lag",
    "batch",
    "quality",
    "reconcile",
    "alerts",
    "maintenance",
    "serving",
    "history",
    "streaming",
    "monitor",
    "ingest",
    "cli",
)
LIBRARY = "include/truelog"
