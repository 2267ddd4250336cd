"""Facets: what an event says about a job, a run or a dataset, in the forms that OpenLineage defines."""

from collections.abc import Iterable, Mapping
from typing import Any

from truelog import __version__

PRODUCER = f"urn:truelog:{__version__}"
_SCHEMAS = "https://openlineage.io/spec/facets"

Facet = dict[str, Any]


def job_type(processing: str, kind: str) -> Facet:
    """`processing` is STREAMING or BATCH."""
    known = {"processingType": processing, "integration": "TRUELOG", "jobType": kind}
    return _facet("2-0-4", "JobTypeJobFacet", known)


def documentation(text: str) -> Facet:
    return _facet("1-1-0", "DocumentationJobFacet", {"description": text})


def error_message(text: str) -> Facet:
    return _facet("1-0-1", "ErrorMessageRunFacet", {"message": text, "programmingLanguage": "PYTHON"})


def test(tests: Iterable[Mapping[str, Any]]) -> Facet:
    """The outcomes of tests that a run has made."""
    return _facet("1-0-1", "TestRunFacet", {"tests": [dict(each) for each in tests]})


def schema(fields: Iterable[Mapping[str, str]]) -> Facet:
    """The columns of a dataset, each with its name, and its type and description if they are known."""
    return _facet("1-2-0", "SchemaDatasetFacet", {"fields": [dict(each) for each in fields]})


def version(text: str) -> Facet:
    return _facet("1-0-1", "DatasetVersionDatasetFacet", {"datasetVersion": text})


def column_lineage(fields: Mapping[str, Any], dataset: Iterable[Mapping[str, Any]]) -> Facet:
    """The input fields of each column, and the input fields on which the rows as a whole depend."""
    return _facet("1-2-0", "ColumnLineageDatasetFacet", {"fields": dict(fields), "dataset": list(dataset)})


def _facet(revision: str, name: str, values: Mapping[str, Any]) -> Facet:
    return {"_producer": PRODUCER, "_schemaURL": f"{_SCHEMAS}/{revision}/{name}.json#/$defs/{name}", **values}
