"""The official schemas of AsyncAPI and of the Open Data Contract Standard, and what in a document breaks them."""

import gzip
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator, Draft201909Validator
from jsonschema.protocols import Validator
from open_data_contract_standard.model import OpenDataContractStandard

_ASYNCAPI = Path(__file__).parent / "reports/contracts/asyncapi_spec/3.0.0.json.gz"


@cache
def _asyncapi() -> Validator:
    return Draft7Validator(json.loads(gzip.decompress(_ASYNCAPI.read_bytes())))


@cache
def _odcs() -> Validator:
    return Draft201909Validator(json.loads((files("open_data_contract_standard") / "schema.json").read_text()))


def asyncapi_defects(document: dict[str, Any]) -> list[str]:
    """Also references to what is not in the document, which no schema finds."""
    defects = [f"{each.json_path}: {each.message}" for each in _asyncapi().iter_errors(document)]
    return defects + [each for each in _references(document) if not _is_found(document, each)]


def odcs_defects(contract: dict[str, Any]) -> list[str]:
    """Also fields that the model of the standard does not have."""
    OpenDataContractStandard.from_string(json.dumps(contract))
    return [f"{each.json_path}: {each.message}" for each in _odcs().iter_errors(contract)]


def _references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for each in value for found in _references(each)]
    if not isinstance(value, dict):
        return []
    own = [str(value["$ref"])] if "$ref" in value else []
    return own + [found for each in value.values() for found in _references(each)]


def _is_found(document: Any, reference: str) -> bool:
    for part in reference.removeprefix("#/").split("/"):
        if not isinstance(document, dict) or part not in document:
            return False
        document = document[part]
    return reference.startswith("#/")
