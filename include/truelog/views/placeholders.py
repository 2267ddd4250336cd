"""Placeholders in the SQL of a declaration: `{view}`, `{clock}`, `{column}`.

SQL has braces of its own, as in `'{}'::jsonb` and `'[a-z]{2}'`. They stay as they are. A text in which every brace
belongs to a placeholder or is doubled is a format string of Python: its doubled braces become single ones.
"""

import re
from collections.abc import Mapping
from string import Formatter

_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")


def filled(text: str, values: Mapping[str, str]) -> str:
    """The SQL with the values of its placeholders."""
    if _is_format(text, values):
        return text.format_map(values)
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def unknown(text: str, values: Mapping[str, str]) -> set[str]:
    """The names in braces that have no value."""
    return set() if _is_format(text, values) else set(_PLACEHOLDER.findall(text)) - values.keys()


def _is_format(text: str, values: Mapping[str, str]) -> bool:
    try:
        return all(name is None or name in values for _, name, _, _ in Formatter().parse(text))
    except ValueError:  # a single brace
        return False
