"""Judges events of OpenLineage by the classes of its own client library, and walks the graph that they form."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import attr
from openlineage.client import generated
from openlineage.client.event_v2 import Job, JobEvent, OutputDataset, Run, RunEvent, RunState
from openlineage.client.generated.base import BaseEvent, BaseFacet, InputDataset
from openlineage.client.serde import Serde

Node = tuple[str, str]  # the namespace and the name of a dataset


def _facet_classes() -> dict[str, type]:
    """The library's class of each facet, by the address of its schema."""
    modules = [import_module(f"{generated.__name__}.{each.name}") for each in iter_modules(generated.__path__)]
    classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    return {each._get_schema(): each for each in classes if issubclass(each, BaseFacet)}


_FACETS = _facet_classes()


def require_valid(event: Mapping[str, Any]) -> None:
    """Require that the library's own classes write exactly this event: no field is missing, unknown or misspelt."""
    assert Serde.to_dict(_as_library(event)) == dict(event)


def walk(events: Iterable[Mapping[str, Any]], begin: Node) -> set[Node]:
    """The datasets that can be reached from one of them, by jobs that read it and what they write."""
    steps: dict[Node, set[Node]] = {}
    for event in events:
        for read in event["inputs"]:
            steps.setdefault(_node(read), set()).update(_node(each) for each in event["outputs"])
    reached, due = set[Node](), [begin]
    while due:
        node = due.pop()
        if node not in reached:
            reached.add(node)
            due += steps.get(node, ())
    return reached


def _node(dataset: Mapping[str, Any]) -> Node:
    return dataset["namespace"], dataset["name"]


def _as_library(event: Mapping[str, Any]) -> BaseEvent:
    job, inputs, outputs = event["job"], event["inputs"], event["outputs"]
    known = {
        "eventTime": event["eventTime"],
        "producer": event["producer"],
        "job": Job(job["namespace"], job["name"], _facets(job["facets"])),
        "inputs": [InputDataset(*_node(each), facets=_facets(each["facets"]), inputFacets=None) for each in inputs],
        "outputs": [OutputDataset(*_node(each), facets=_facets(each["facets"]), outputFacets=None) for each in outputs],
    }
    if "run" not in event:
        return JobEvent(**known)
    run = event["run"]
    state = RunState(event["eventType"])
    return RunEvent(eventType=state, run=Run(run["runId"], _facets(run["facets"])), **known)


def _facets(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _facet(values) for name, values in given.items()}


def _facet(given: Mapping[str, Any]) -> Any:
    """The facet as an object of the class that its schema names. An unknown field is an error."""
    made = _FACETS[given["_schemaURL"]]
    values = {name: value for name, value in given.items() if not name.startswith("_")}
    return _without_empty(made(**values, producer=given["_producer"]))


def _without_empty(facet: Any) -> Any:
    """The facet without the empty lists and objects that the library adds where a field is not given."""
    for each in attr.fields(type(facet)):
        if getattr(facet, each.name) in ([], {}) and each.default is not attr.NOTHING:
            setattr(facet, each.name, None)
    return facet
