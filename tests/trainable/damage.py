"""Every damage of one field of a JSON value: dropped, doubled, of another type or value, swapped, cut."""

import copy
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]
MISSING: Any = object()


@dataclass(frozen=True)
class Damage:
    """One damage."""

    kind: str
    path: Path
    field: str
    """The path as a pattern: which element of a list it is does not matter, but for answers and other messages."""

    @property
    def name(self) -> str:
        """What it does."""
        return f"{self.kind} {self.field}"


def damages(value: Any, chance: random.Random) -> Iterator[Damage]:
    """One of each kind for each field, at a place that chance picks."""
    places: dict[str, list[Path]] = defaultdict(list)
    for path in _paths(value):
        places[_field(value, path)].append(path)
    for field, paths in sorted(places.items()):
        for kind in KINDS:
            tried = (Damage(kind, path, field) for path in chance.sample(paths, len(paths)))
            able = next((damage for damage in tried if _put(value, damage) is not MISSING), None)
            if able is not None:
                yield able


def damaged(value: Any, damage: Damage) -> Any:
    """A copy with the damage, or `MISSING` where it would change nothing."""
    *way, last = damage.path
    old, new = _at(value, damage.path), _put(value, damage)
    if new is MISSING:
        return MISSING
    spoilt = copy.deepcopy(value)
    holder = _at(spoilt, tuple(way))
    if damage.kind == "swap":
        other = _sibling(value, damage.path)
        assert other is not None
        _at(spoilt, other[:-1])[other[-1]] = copy.deepcopy(old)
    if new is _DROP:
        del holder[last]
    else:
        holder[last] = copy.deepcopy(new)
    return spoilt


def _put(value: Any, damage: Damage) -> Any:
    """What comes to stand in the place; `MISSING` where it would change nothing."""
    old = _at(value, damage.path)
    new = KINDS[damage.kind](value, damage.path, old)
    return MISSING if new == old and type(new) is type(old) else new


_DROP: Any = object()
_EMPTY: tuple[Any, ...] = (None, [], {})


def _drop(value: Any, path: Path, old: Any) -> Any:
    return MISSING if any(old == empty for empty in _EMPTY) else _DROP


def _null(value: Any, path: Path, old: Any) -> Any:
    return MISSING if old is None else None


def _type(value: Any, path: Path, old: Any) -> Any:
    if isinstance(old, bool | int | float):
        return str(old)
    if isinstance(old, str):
        return 7
    return MISSING if old is None else "text"


def _other(value: Any, path: Path, old: Any) -> Any:
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return old + 1
    if isinstance(old, float):
        return old - 0.25
    return f"{old}x" if isinstance(old, str) else MISSING


def _double(value: Any, path: Path, old: Any) -> Any:
    return [*old, old[-1]] if isinstance(old, list) and old else MISSING


def _cut(value: Any, path: Path, old: Any) -> Any:
    return old[:-1] if isinstance(old, list) and old else MISSING


def _swap(value: Any, path: Path, old: Any) -> Any:
    other = _sibling(value, path)
    return MISSING if other is None else _at(value, other)


KINDS = {"drop": _drop, "null": _null, "type": _type, "other": _other, "double": _double, "cut": _cut, "swap": _swap}


def _sibling(value: Any, path: Path) -> Path | None:
    """The same field of the nearest element of the same list that has another value there; a list of another length, as
    one of the same length is what damages of all its entries give."""
    for depth in range(len(path) - 1, -1, -1):
        if isinstance(number := path[depth], int):
            elements = _at(value, path[:depth])
            for other in [*range(number + 1, len(elements)), *range(number)]:
                there = (*path[:depth], other, *path[depth + 1 :])
                found = _at(value, there)
                if found is not MISSING and _differ(found, _at(value, path)):
                    return there
    return None


def _differ(one: Any, other: Any) -> bool:
    return len(one) != len(other) if isinstance(one, list) and isinstance(other, list) else bool(one != other)


def _at(value: Any, path: Path) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return MISSING
    return value


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in entries:
        yield from _paths(inner, (*path, step))


def _field(value: Any, path: Path) -> str:
    parts: list[str] = []
    for step in path:
        if isinstance(step, str):
            parts.append(step)
        elif parts and parts[-1] == "nodes":
            parts[-1] = "answer" if value["traces"][path[1]]["nodes"][step]["sampled"] else "request"
        else:
            parts[-1] += "[]"
    return ".".join(parts)
