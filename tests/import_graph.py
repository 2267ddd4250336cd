"""The graph of what each test file can reach: by imports, by fixtures, and by the names of programs in its strings.

A node is a file, or a name of a conftest file (`tests/conftest.py::kafka`), because a test uses only some fixtures of
the conftest files above it. An edge says why one node needs another. The graph is read from the syntax trees, and no
module is imported.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path, PurePosixPath

from tests.house.tree import files, modules

PLACES = ("include", "spark_apps", "dags", "plugins", "")  # folders on the import path
SCRIPTS = "spark_apps"
SERVICES = "include/runtime"
DECLARATIONS = "include/truelog/services/*/declaration.py"
REGISTRY = "truelog.services.registry"  # names Truelog's own services
PUBLIC = "include/truelog/__init__.py"  # imports a module by its name when a program asks for one of the module's names
CLI = "include/truelog/cli/main.py"  # imports every command; a test reaches only the commands that it names
COMMANDS = "include/truelog/cli/commands/"
# Strings in these folders are not read. The runtime names every service and the launcher every application, but a test
# starts few of them. The house tests always run.
UNREAD = ("include/", "tests/house/", "bench/")

Node = str


@dataclass(frozen=True)
class Use:
    """What a piece of code refers to: modules, files, and names that may be fixtures."""

    imports: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # names from a module; "" is all
    names: set[str] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)


def read_use(tree: ast.AST) -> Use:
    found = Use()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.imports[alias.name].add("")
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.imports[node.module] |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Name):
            found.names.add(node.id)
        elif isinstance(node, ast.arg):
            found.names.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.strings.add(node.value)
    return found


class ImportGraph:
    """The graph of the tree, with files that were removed since, because a file that imports them fails now."""

    def __init__(self, root: Path, removed: tuple[str, ...] = ()) -> None:
        self._trees = dict(modules(root))
        self._files = [str(path.relative_to(root)) for path in files(root)] + list(removed)
        self._modules = {name: file for file in self._files for name in _module_names(file)}
        self._is_shared = {file for file in self._trees if PurePosixPath(file).name == "conftest.py"} | self._plugins()
        self.edges: dict[Node, set[Node]] = defaultdict(set)
        for file, tree in self._trees.items():
            self._add_shared(file, tree) if file in self._is_shared else self._add(file, tree)

    @property
    def tests(self) -> list[str]:
        return [each for each in self._trees if each.startswith("tests/") and is_test(each)]

    def link(self, node: Node, needed: str) -> None:
        """Add an edge that no import shows, to a file, to all files of a folder, or to all files of a pattern."""
        self.edges[node] |= {each for each in self._files if is_one_of(each, needed)}

    def paths_from(self, changed: set[str]) -> dict[Node, list[Node]]:
        """For each node that needs a changed file: a shortest chain from the node to the file."""
        users: dict[Node, set[Node]] = defaultdict(set)
        for user, needed in self.edges.items():
            for node in needed:
                users[node].add(user)
        paths = {node: [node] for node in sorted(changed)}
        waiting = list(paths)
        for node in waiting:
            for user in sorted(users[node] - paths.keys()):
                paths[user] = [user, *paths[node]]
                waiting.append(user)
        return paths

    def _plugins(self) -> set[str]:
        """The modules that conftest files load as plugins. Their fixtures are visible to all tests."""
        named = [
            each.value
            for file, tree in self._trees.items()
            if PurePosixPath(file).name == "conftest.py"
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytest_plugins"
            for each in ast.walk(node.value)
            if isinstance(each, ast.Constant)
        ]
        return {self._modules[str(name)] for name in named if name in self._modules}

    def _add(self, file: str, tree: ast.Module) -> None:
        use = read_use(tree)
        self.edges[file] |= self._needed(file, use)
        if is_test(file):
            self.edges[file] |= self._fixtures(file, use.names | use.strings)

    def _add_shared(self, file: str, tree: ast.Module) -> None:
        """Add a node for each name that the file defines. A name needs the imports of the names that it uses."""
        defined = {name: statement for statement in tree.body for name in _defined(statement)}
        imported = {
            (alias.asname or alias.name).partition(".")[0]: statement
            for statement in ast.walk(tree)
            if isinstance(statement, ast.Import | ast.ImportFrom)
            for alias in statement.names
        }
        for name, statement in defined.items():
            node, use = f"{file}::{name}", read_use(statement)
            self.edges[node].add(file)
            self.edges[node] |= self._needed(file, use)
            for used in use.names & imported.keys():
                self.edges[node] |= self._needed(file, _only(imported[used], used))
            self.edges[node] |= {f"{file}::{used}" for used in use.names & defined.keys() if used != name}
            self.edges[node] |= self._fixtures(file, use.names) - {node}

    def _fixtures(self, file: str, names: set[str]) -> set[Node]:
        """The names of shared files that the file sees, and what these files always run."""
        found = set()
        for shared in self._is_shared:
            above = "tests" if PurePosixPath(shared).name != "conftest.py" else str(PurePosixPath(shared).parent)
            if file.startswith(f"{above}/"):
                defined = self._defined_in[shared]
                found |= {f"{shared}::{name}" for name in names & defined.keys()}
                found |= {f"{shared}::{name}" for name, always in defined.items() if always}
        return found

    @cached_property
    def _defined_in(self) -> dict[str, dict[str, bool]]:
        """The names that each shared file defines, and whether they act without being named."""
        return {
            file: {
                name: _acts_always(statement) for statement in self._trees[file].body for name in _defined(statement)
            }
            for file in self._is_shared
        }

    def _needed(self, file: str, use: Use) -> set[Node]:
        needed = {node for module, names in use.imports.items() for node in self._imported(module, names)}
        if file == PUBLIC or not file.startswith(UNREAD):
            needed |= {node for each in use.strings for node in self._named(file, each)}
        if {"tests.command", "truelog.cli"} & use.imports.keys():
            needed |= {
                self._commands[word] for each in use.strings for word in each.split()[:1] if word in self._commands
            }
        if REGISTRY in use.imports and not file.startswith(UNREAD):
            needed |= {each for name in self._own_services for each in self._started(name)}
        return {each for each in needed - {file} if file != CLI or not each.startswith(COMMANDS)}

    def _imported(self, module: str, names: set[str]) -> Iterator[Node]:
        for name in names:
            if found := self._modules.get(f"{module}.{name}" if name else module):
                yield found
            elif found := self._modules.get(module):
                yield f"{found}::{name}" if found in self._is_shared and name in self._defined_in[found] else found

    def _named(self, file: str, words: str) -> Iterator[Node]:
        """The files that a string names: a module, an application's script, a service, or a file of any other kind."""
        if "." in words and words in self._modules:
            yield self._modules[words]
        if (service := f"{SERVICES}/{words}.py") in self._trees:
            yield service
            yield from (self._modules[each] for each in read_use(self._trees[service]).strings if each in self._modules)
        yield from self._started(words)
        if (script := f"{SCRIPTS}/{PurePosixPath(words).name}") in self._trees:
            yield script
        yield from self._data.get(PurePosixPath(words).name, ())

    def _started(self, name: str) -> Iterator[Node]:
        """The declaration of one of Truelog's own services, and the module that its process runs."""
        if declaration := self._own_services.get(name):
            yield declaration
            yield from (
                self._modules[each] for each in read_use(self._trees[declaration]).strings if each in self._modules
            )

    @cached_property
    def _own_services(self) -> dict[str, str]:
        """The declarations of Truelog's own services, by their names."""
        return {
            ast.literal_eval(word.value): file
            for file, tree in self._trees.items()
            if PurePosixPath(file).match(DECLARATIONS)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Service"
            for word in node.keywords
            if word.arg == "name"
        }

    @cached_property
    def _commands(self) -> dict[str, str]:
        """The module of each command, by the first word after `truelog`."""
        nodes = list(ast.walk(self._trees[CLI])) if CLI in self._trees else []
        named = [each for node in nodes if isinstance(node, ast.Dict) for each in _pairs(node)]
        named += [(node.attr, node) for node in nodes if isinstance(node, ast.Attribute)]
        modules = ((word, f"{COMMANDS}{ast.unparse(node).partition('.')[0]}.py") for word, node in named)
        return {word: module for word, module in modules if module in self._trees}

    @cached_property
    def _data(self) -> Mapping[str, set[str]]:
        """Files that are not Python, by name."""
        found = defaultdict(set)
        for file in self._files:
            if not file.endswith(".py"):
                found[PurePosixPath(file).name].add(file)
        return found


def _pairs(node: ast.Dict) -> Iterator[tuple[str, ast.expr]]:
    return ((ast.literal_eval(key), value) for key, value in zip(node.keys, node.values, strict=True) if key)


def is_one_of(file: str, needed: str) -> bool:
    """Whether a file is this file, is in this folder, or matches this pattern."""
    return fnmatch(file, f"{needed}*" if needed.endswith("/") else needed)


def is_test(file: str) -> bool:
    return PurePosixPath(file).match("test_*.py")


def _module_names(file: str) -> Iterator[str]:
    for place in PLACES:
        if file.endswith(".py") and file.startswith(f"{place}/" if place else ""):
            yield file[len(place) + 1 if place else 0 :].removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def _acts_always(statement: ast.stmt) -> bool:
    """Whether this is a hook of pytest, or a fixture that every test uses."""
    if not isinstance(statement, ast.FunctionDef):
        return False
    return statement.name.startswith("pytest_") or any(
        "autouse=True" in ast.unparse(each) for each in statement.decorator_list
    )


def _only(statement: ast.stmt, name: str) -> Use:
    """The use of one name of an import statement."""
    use = Use()
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            if (alias.asname or alias.name).partition(".")[0] == name:
                use.imports[alias.name].add("")
    elif isinstance(statement, ast.ImportFrom) and statement.module:
        use.imports[statement.module] |= {alias.name for alias in statement.names if name in {alias.asname, alias.name}}
    return use
