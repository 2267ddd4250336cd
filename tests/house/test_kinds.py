"""Nothing outside the folder of a kind of table names the kind, so that a new kind is one folder.

A module names a kind if it imports from the folder or the declaration of a kind, or asks a table for its kind.
`tables/kinds.py` lists the kinds.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.house.layers import LIBRARY, ORDER
from tests.house.tree import PROJECT, files, imports, modules, plant

VIEWS = "truelog.views."


def folders(root: Path) -> set[str]:
    """The folders of the kinds, which have a `kind.py`."""
    return {path.parent.name for path in files(root, f"{LIBRARY}/tables/*/kind.py")}


def declarations(root: Path) -> set[str]:
    """The modules of `views` that are about a kind: its folder imports them, or they import such a module."""
    kinds = modules(root, *(f"{LIBRARY}/tables/{folder}/*.py" for folder in folders(root)))
    imported = {name for _, tree in kinds for name in _views(tree)} - {"view"}
    return imported | {
        Path(name).stem for name, tree in modules(root, f"{LIBRARY}/views/*.py") if _views(tree) & imported
    }


def _views(tree: ast.Module) -> set[str]:
    return {name.removeprefix(VIEWS).split(".")[0] for _, name in imports(tree) if name.startswith(VIEWS)}


KINDS = tuple(f"truelog.tables.{folder}." for folder in sorted(folders(PROJECT)))
DECLARATIONS = tuple(f"{VIEWS}{name}." for name in sorted(declarations(PROJECT)))
# A package about one kind names this kind.
ABOUT = {
    "rules": (
        "truelog.tables.patterns.",
        "truelog.views.judged.",
        "truelog.views.patterns.",
        "truelog.views.searches.",
    )
}
QUESTIONS = {"dedupe", "horizon", "derivation"}
LIST = "kinds.py"
# The imports of kinds by other modules of `tables`, which may only become fewer.
REMAINING = {
    "shown/meanings.py": 3,
    "staging/batch_plans.py": 2,
    "staging/changed_files.py": 1,
    "staging/repeated_plans.py": 1,
}


def named_kinds(root: Path) -> Counter[str]:
    """The number of places in each package above `tables` that name a kind."""
    above = ORDER[ORDER.index("tables") + 1 :]
    return Counter(
        package
        for name, tree in modules(root, f"{LIBRARY}/*/*.py")
        if (package := Path(name).parts[2]) in above
        for each in _named(tree)
        if not each.startswith(ABOUT.get(package, ()))
    )


def named_beside_the_kinds(root: Path) -> Counter[str]:
    """The number of imports of kinds in each module of `tables` that is not in the folder of a kind."""
    kinds = {name.split(".")[2] for name in KINDS}
    return Counter(
        str(place)
        for name, tree in modules(root, f"{LIBRARY}/tables/*.py")
        if (place := Path(name).relative_to(f"{LIBRARY}/tables")).parts[0] not in {*kinds, LIST}
        for _ in _imported(tree)
    )


def _imported(tree: ast.Module) -> list[str]:
    return [name for _, name in imports(tree) if name.startswith(KINDS + DECLARATIONS)]


def _named(tree: ast.Module) -> Iterator[str]:
    yield from _imported(tree)
    yield from (node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in QUESTIONS)


def test_the_kinds_and_their_declarations_are_found(tmp_path: Path) -> None:
    planted = {
        "tables/tracing/trace.py": "from truelog.views.meaning import Meaning\n",
        "tables/toy/kind.py": "from truelog.views.toy import Toy\nfrom truelog.views.view import View\n",
        "views/toy.py": "from truelog.views.view import View\n",
        "views/toys.py": "from truelog.views import toy\n",
        "views/view.py": "from truelog.views.meaning import Meaning\n",
    }
    plant(tmp_path, {f"{LIBRARY}/{name}": text for name, text in planted.items()})
    assert (folders(tmp_path), declarations(tmp_path)) == ({"toy"}, {"toy", "toys"})
    assert "truelog.tables.fold." in KINDS
    assert "truelog.views.judged." in DECLARATIONS


def test_packages_above_the_tables_name_no_kind() -> None:
    assert named_kinds(PROJECT) == {}


def test_no_other_module_of_the_tables_names_a_kind() -> None:
    assert named_beside_the_kinds(PROJECT) == REMAINING


def test_a_kind_that_is_named_beside_the_kinds_is_seen(tmp_path: Path) -> None:
    named = "from truelog.tables.fold import merge\nfrom truelog.views.join import Join\nisinstance(view, Join)\n"
    planted = ("compiler.py", "shown/x.py", "fold/merge.py", LIST)
    plant(tmp_path, {f"{LIBRARY}/tables/{name}": named for name in planted})
    assert named_beside_the_kinds(tmp_path) == {"compiler.py": 2, "shown/x.py": 2}


def test_a_named_kind_is_seen(tmp_path: Path) -> None:
    below = "from truelog.tables.fold import merge\n"
    above = (
        below
        + "from truelog.views.join import Match, split\nfrom truelog.tables.stage import staged\nt.derivation\nt.view\n"
    )
    planted = {"tables/x.py": below, "kernel/x.py": above, "history/y/x.py": below}
    plant(tmp_path, {f"{LIBRARY}/{name}": text for name, text in planted.items()})
    assert named_kinds(tmp_path) == {"kernel": 4, "history": 1}
