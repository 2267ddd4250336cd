"""Compiles the tree of a pattern into a program: a list of instructions, through which a match is one path.

Where a path divides, the preferred branch comes first. Repeats are unrolled, so a program needs no counters.
"""

from dataclasses import dataclass

from truelog.patterns.grammar import Choice, Repeat, Sequence, Skip, Step, Tree
from truelog.support.errors import BadInput

MOST_INSTRUCTIONS = 5_000


@dataclass(frozen=True)
class Take:
    """The next event fits this step and is part of the match."""

    step: str


@dataclass(frozen=True)
class Pass:
    """The next event is skipped."""


@dataclass(frozen=True)
class Split:
    """Continue at one of these instructions. The first is preferred."""

    preferred: int
    other: int


@dataclass(frozen=True)
class Jump:
    """Continue at this instruction."""

    to: int


@dataclass(frozen=True)
class Accept:
    """The events so far are a match."""


Instruction = Take | Pass | Split | Jump | Accept


def compile_tree(tree: Tree) -> tuple[Instruction, ...]:
    """The program of a tree.

    Raises:
        BadInput: the repeats make the program too long.
    """
    program: list[Instruction] = []
    _add(program, tree)
    program.append(Accept())
    return tuple(program)


def least_events(tree: Tree) -> int:
    """The fewest events of a match."""
    match tree:
        case Step():
            return 1
        case Skip():
            return 0
        case Sequence(items):
            return sum(map(least_events, items))
        case Choice(alternatives):
            return min(map(least_events, alternatives))
        case Repeat(item, least):
            return least * least_events(item)


@dataclass(frozen=True)
class Reach:
    """Where a search gets from an instruction before it reads the next event.

    takes: the steps that the next event may fit, each with the instruction after it.
    passes: the instructions after the next event is skipped.
    accepts: whether the events so far may be a match.
    cost: how many steps the search takes at most until then.
    """

    takes: tuple[tuple[str, int], ...]
    passes: tuple[int, ...]
    accepts: bool
    cost: int


def reach(program: tuple[Instruction, ...], start: int) -> Reach:
    """Where a search gets from this instruction."""
    takes, passes, accepts, cost = list[tuple[str, int]](), list[int](), False, 1
    waiting, seen = [start], {start}
    while waiting:
        at = waiting.pop()
        following: tuple[int, ...] = ()
        match program[at]:
            case Take(step):
                takes.append((step, at + 1))
            case Pass():
                passes.append(at + 1)
            case Accept():
                accepts = True
            case Jump(to):
                following = (to,)
            case Split(preferred, other):
                following = (preferred, other)
        cost += len(following)
        waiting += (each for each in following if each not in seen)
        seen.update(following)
    return Reach(tuple(takes), tuple(passes), accepts, cost)


def _add(program: list[Instruction], tree: Tree) -> None:
    if len(program) > MOST_INSTRUCTIONS:
        raise BadInput(f"the repeats unroll to more than {MOST_INSTRUCTIONS:,} steps; use smaller numbers")
    match tree:
        case Step(name):
            program.append(Take(name))
        case Skip():
            start = len(program)
            program.extend((Split(start + 3, start + 1), Pass(), Jump(start)))
        case Sequence(items):
            for item in items:
                _add(program, item)
        case Choice(alternatives):
            _add_choice(program, alternatives)
        case Repeat(item, least, most, is_greedy):
            for _ in range(least):
                _add(program, item)
            if most is None:
                _add_loop(program, item, is_greedy)
            else:
                _add_optional(program, item, most - least, is_greedy)


def _add_choice(program: list[Instruction], alternatives: tuple[Tree, ...]) -> None:
    ends = []
    for alternative in alternatives[:-1]:
        split = _reserve(program)
        _add(program, alternative)
        ends.append(_reserve(program))
        program[split] = Split(split + 1, len(program))
    _add(program, alternatives[-1])
    for end in ends:
        program[end] = Jump(len(program))


def _add_loop(program: list[Instruction], item: Tree, is_greedy: bool) -> None:
    split = _reserve(program)
    _add(program, item)
    program.append(Jump(split))
    program[split] = _split(split + 1, len(program), is_greedy)


def _add_optional(program: list[Instruction], item: Tree, times: int, is_greedy: bool) -> None:
    """The item up to so many times. After the first time that is left out, all are left out."""
    splits = []
    for _ in range(times):
        splits.append(_reserve(program))
        _add(program, item)
    for split in splits:
        program[split] = _split(split + 1, len(program), is_greedy)


def _reserve(program: list[Instruction]) -> int:
    """The place of an instruction that is not known yet."""
    program.append(Accept())
    return len(program) - 1


def _split(item: int, end: int, is_greedy: bool) -> Split:
    return Split(item, end) if is_greedy else Split(end, item)
