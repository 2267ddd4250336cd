"""The library's packages are layers: each imports only packages below it, stays small, and says what it is for.

`docs/architecture.md` shows the same order. Imports inside functions and under TYPE_CHECKING also count.
"""

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tests.house.layers import LIBRARY, ORDER
from tests.house.tree import PROJECT, imports, modules, plant

MAY_IMPORT_RUNTIME = f"{LIBRARY}/cli/commands/services.py"  # this module starts and stops the services
ABOVE_RUNTIME = ("demo", "pages", "truelog.cli")
MODULES = 14


def upward_imports(root: Path) -> list[str]:
    """Imports of a package that is not below the importing package, and packages that ORDER does not list."""
    return [
        f"{name}:{line} imports {imported}; {package} may import only itself and what is before it in ORDER"
        for name, tree in modules(root, f"{LIBRARY}/*/*.py")
        for line, imported in _imports(tree)
        if imported.startswith((".", "truelog")) and not _is_below(imported, package := Path(name).parts[2])
    ] + [f"{LIBRARY}/{package} is not in ORDER" for package in sorted(_packages(root) - {*ORDER})]


def runtime_imports(root: Path) -> list[str]:
    return [
        f"{name}:{line} imports {imported}; only {MAY_IMPORT_RUNTIME} may"
        for name, tree in modules(root, f"{LIBRARY}/*.py")
        for line, imported in _imports(tree)
        if imported.partition(".")[0] == "runtime" and name != MAY_IMPORT_RUNTIME
    ]


def imports_from_above(root: Path) -> list[str]:
    """Imports of `include/runtime/` from what uses the embedded services."""
    return [
        f"{name}:{line} imports {imported}, which uses the runtime"
        for name, tree in modules(root, "include/runtime/*.py")
        for line, imported in _imports(tree)
        if imported.startswith(ABOVE_RUNTIME)
    ]


def imports_of_the_client(root: Path) -> list[str]:
    """Imports of the platform by the client: its wheel has no other package (clients/python/pyproject.toml)."""
    return [
        f"{name}:{line} imports {imported}; the client may import only itself"
        for name, tree in modules(root, f"{LIBRARY}/client/*.py")
        for line, imported in _imports(tree)
        if imported.startswith((".", "truelog")) and not f"{imported}.".startswith("truelog.client.")
    ]


def circles(root: Path) -> list[str]:
    """Groups of modules that import each other, directly or through others, at any time."""
    names = {_module(name): tree for name, tree in modules(root, f"{LIBRARY}/*.py")}
    imported = {name: {each for _, each in imports(tree) for each in _own(each, names)} for name, tree in names.items()}
    reached = {name: _reached(name, imported) for name in imported}
    groups = {frozenset({name, *(each for each in reached[name] if name in reached[each])}) for name in reached}
    return sorted(" ".join(sorted(group)) for group in groups if len(group) > 1 or {*group} <= imported[min(group)])


def _module(path: str) -> str:
    return path.removeprefix("include/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _own(imported: str, names: Collection[str]) -> Iterator[str]:
    """The module of the library that an import of a name reads: the name may be a module, or something in one."""
    for each in (imported, imported.rpartition(".")[0]):
        if each in names:
            yield each
            return


def _reached(name: str, imported: Mapping[str, set[str]]) -> set[str]:
    found, due = set[str](), [*imported[name]]
    while due:
        each = due.pop()
        if each not in found:
            found.add(each)
            due += imported[each]
    return found


def packages_too_large(root: Path) -> list[str]:
    paths = [Path(name) for name, _ in modules(root, f"{LIBRARY}/*.py")]
    sizes = Counter(str(path.parent) for path in paths if path.name != "__init__.py")
    return [f"{package} has {size} modules, at most {MODULES}" for package, size in sizes.items() if size > MODULES]


def not_only_docstrings(root: Path) -> list[str]:
    """Packages whose `__init__.py` contains code, which every import would then run, and modules outside packages."""
    return [
        f"{name} must hold one docstring and nothing else"
        for name, tree in modules(root, f"{LIBRARY}/*/__init__.py")
        if not ast.get_docstring(tree) or len(tree.body) > 1
    ] + [f"{LIBRARY}/{name} lies outside of the packages" for name in _outside(root)]


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of each imported module; `from truelog import x` imports `truelog.x`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "truelog" else [module]
            yield from ((node.lineno, name) for name in names)


def _is_below(imported: str, package: str) -> bool:
    """Whether the package may import this module.

    Relative imports and imports of the public API are refused, because they hide where a name comes from.
    """
    if imported == "truelog.__version__":
        return True
    other = imported.partition("truelog.")[2].partition(".")[0]
    return package in ORDER and other in ORDER[: ORDER.index(package) + 1]


def _packages(root: Path) -> set[str]:
    return {Path(name).parts[2] for name, _ in modules(root, f"{LIBRARY}/*/*.py")}


def _outside(root: Path) -> list[str]:
    inside = (Path(name).relative_to(LIBRARY) for name, _ in modules(root, f"{LIBRARY}/*.py"))
    return [path.name for path in inside if len(path.parts) == 1 and path.name != "__init__.py"]


def test_packages_import_only_what_is_below_them() -> None:
    assert _packages(PROJECT) == {*ORDER}
    assert upward_imports(PROJECT) == []


def test_no_modules_import_each_other() -> None:
    assert circles(PROJECT) == []


def test_the_library_does_not_import_runtime() -> None:
    assert runtime_imports(PROJECT) == []


def test_the_runtime_does_not_import_what_uses_it() -> None:
    assert imports_from_above(PROJECT) == []


def test_the_client_imports_nothing_of_the_platform() -> None:
    assert imports_of_the_client(PROJECT) == []


def test_no_package_is_too_large() -> None:
    assert packages_too_large(PROJECT) == []


def test_packages_import_nothing_by_themselves() -> None:
    assert not_only_docstrings(PROJECT) == []


UPWARD = """import truelog.cli.main
from truelog.support import errors
from truelog.log import topics
from truelog.archive import audit
if TYPE_CHECKING:
    from truelog.archive.audit import Report
def f():
    from truelog import log, reconcile
    from . import beside
"""


def test_upward_imports_are_seen(tmp_path: Path) -> None:
    nested = "from truelog.cli.output import show\nfrom truelog.elsewhere import x\nfrom truelog import View\n"
    planted = {"log/upward.py": UPWARD, "cli/commands/nested.py": nested, "stray/x.py": "import truelog.support.x\n"}
    plant(tmp_path, {f"{LIBRARY}/{name}": text for name, text in planted.items()})
    assert [problem.partition(";")[0].removeprefix(f"{LIBRARY}/") for problem in upward_imports(tmp_path)] == [
        "cli/commands/nested.py:2 imports truelog.elsewhere",
        "cli/commands/nested.py:3 imports truelog.View",
        "log/upward.py:1 imports truelog.cli.main",
        "log/upward.py:4 imports truelog.archive",
        "log/upward.py:6 imports truelog.archive.audit",
        "log/upward.py:8 imports truelog.reconcile",
        "log/upward.py:9 imports .",
        "stray/x.py:1 imports truelog.support.x",
        "stray is not in ORDER",
    ]


def test_modules_that_import_each_other_are_seen(tmp_path: Path) -> None:
    planted = {
        "log/a.py": "from truelog.log import b\n",
        "log/b.py": "def f():\n    from truelog.log.c import g\n",
        "log/c.py": "if TYPE_CHECKING:\n    from truelog.log.a import h\n",
        "log/d.py": "from truelog.log.a import h\n",
    }
    plant(tmp_path, {f"{LIBRARY}/{name}": text for name, text in planted.items()})
    assert circles(tmp_path) == ["truelog.log.a truelog.log.b truelog.log.c"]


def test_imports_of_runtime_are_seen(tmp_path: Path) -> None:
    lazy = "def f():\n    from runtime.wait import until\n"
    planted = {
        "apps/launcher.py": lazy,
        "cli/commands/services.py": "import runtime\n",
        "log/a.py": "import runtimes\n",
    }
    plant(tmp_path, {f"{LIBRARY}/{name}": text for name, text in planted.items()})
    [problem] = runtime_imports(tmp_path)
    assert problem.startswith(f"{LIBRARY}/apps/launcher.py:2 imports runtime.wait;")


def test_imports_of_what_uses_the_runtime_are_seen(tmp_path: Path) -> None:
    planted = {"runtime/a.py": "from truelog.cli.failure import explained\nimport truelog.log.topics\n"}
    planted |= {"runtime/b.py": "def f():\n    from pages import files\n", "demo/a.py": "import truelog.cli.main\n"}
    plant(tmp_path, {f"include/{name}": text for name, text in planted.items()})
    assert [problem.partition(",")[0] for problem in imports_from_above(tmp_path)] == [
        "include/runtime/a.py:1 imports truelog.cli.failure",
        "include/runtime/b.py:2 imports pages",
    ]


def test_imports_of_the_platform_by_the_client_are_seen(tmp_path: Path) -> None:
    text = "import httpx\nfrom truelog.client import page\nfrom truelog.client.page import Page\n"
    wrong = "from truelog.support import errors\nfrom truelog import __version__\nfrom . import page\n"
    plant(tmp_path, {f"{LIBRARY}/client/a.py": text + wrong, f"{LIBRARY}/log/a.py": wrong})
    assert [problem.partition(";")[0] for problem in imports_of_the_client(tmp_path)] == [
        f"{LIBRARY}/client/a.py:4 imports truelog.support",
        f"{LIBRARY}/client/a.py:5 imports truelog.__version__",
        f"{LIBRARY}/client/a.py:6 imports .",
    ]


def test_large_packages_are_seen(tmp_path: Path) -> None:
    sizes = {"cli": 14, "cli/commands": 14, "log": 15}
    names = [f"{package}/m{number}.py" for package, size in sizes.items() for number in range(size)]
    plant(tmp_path, {f"{LIBRARY}/{name}": "" for name in [*names, "cli/__init__.py", "cli/commands/__init__.py"]})
    assert packages_too_large(tmp_path) == [f"{LIBRARY}/log has 15 modules, at most 14"]


def test_packages_that_hold_more_than_a_docstring_are_seen(tmp_path: Path) -> None:
    planted = {
        "__init__.py": "import x\n",
        "log/__init__.py": '"""The log."""\n',
        "cli/__init__.py": '"""Words."""\n\nfrom truelog.cli import main\n',
        "cli/commands/__init__.py": "",
        "stray.py": '"""Stray."""\n',
    }
    plant(tmp_path, {f"{LIBRARY}/{name}": text for name, text in planted.items()})
    assert not_only_docstrings(tmp_path) == [
        f"{LIBRARY}/cli/__init__.py must hold one docstring and nothing else",
        f"{LIBRARY}/cli/commands/__init__.py must hold one docstring and nothing else",
        f"{LIBRARY}/stray.py lies outside of the packages",
    ]
