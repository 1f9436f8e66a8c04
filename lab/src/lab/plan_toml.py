"""TOML with the line of every key, so that an error can point at it; and typed, bounded values out of it.

tomllib tells positions of syntax errors only; the line of a key is found by reading table heads and keys from the
text once more. A key written in a way that this does not see (inside an inline table) is given its table's line.
"""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.records import RecordError

MAX_BYTES = 1 << 20
_HEAD = re.compile(r"^\s*(\[\[?)\s*([A-Za-z0-9_.\-\s\"']+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_\-]+)\s*=")


class PlanError(RecordError):
    """Names file, line and key."""


@dataclass
class Table:
    """One table of the file. Every key must be taken; `done` complains about those that nobody knows."""

    file: str
    path: str
    data: dict[str, Any]
    line: int
    lines: dict[str, int]
    taken: set[str] = field(default_factory=set)

    def error(self, key: str, problem: str) -> PlanError:
        name = f"{self.path}.{key}" if self.path else key
        return PlanError(f"{self.file}:{self.lines.get(key, self.line)}: {name}: {problem}")

    def number(self, key: str, low: float, high: float, default: float | None = None, unit: str = "") -> float:
        """A finite number from low to high; required where there is no default."""
        self.taken.add(key)
        if key not in self.data:
            if default is None:
                raise self.error(key, f"missing: a number{' of ' + unit if unit else ''} from {low:g} to {high:g}")
            return float(default)
        value = self.data[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.error(key, f"{value!r} is no number")
        if not low <= value <= high:
            raise self.error(key, f"{value:g}{' ' + unit if unit else ''} is not from {low:g} to {high:g}")
        return float(value)

    def whole(self, key: str, low: int, high: int, default: int | None = None) -> int:
        value = self.number(key, low, high, default)
        if value != int(value):
            raise self.error(key, f"{value:g} is no whole number")
        return int(value)

    def text(self, key: str, default: str | None = None, allowed: tuple[str, ...] = ()) -> str:
        self.taken.add(key)
        if key not in self.data and default is None:
            raise self.error(key, "missing")
        value = self.data.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"{value!r} is no text")
        if allowed and value not in allowed:
            raise self.error(key, f"{value!r} is none of {', '.join(allowed)}")
        return value

    def done(self) -> None:
        unknown = [k for k in self.data if k not in self.taken]
        if unknown:
            raise self.error(unknown[0], f"no such key here; known: {', '.join(sorted(self.taken))}")


class Document:
    """A whole file: tables by name, arrays of tables as lists."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.file = str(path)
        try:
            raw = self.path.read_bytes()
        except OSError as e:
            raise PlanError(f"{self.file}: {e.strerror}") from e
        if len(raw) > MAX_BYTES:
            raise PlanError(f"{self.file}: {len(raw)} bytes; such a file has at most {MAX_BYTES}")
        try:
            text = raw.decode("utf-8")
            self.data = tomllib.loads(text)
        except UnicodeDecodeError as e:
            raise PlanError(f"{self.file}: no UTF-8: byte {e.start}") from e
        except (tomllib.TOMLDecodeError, RecursionError) as e:
            place = re.search(r"\(at line (\d+), column \d+\)", str(e))
            raise PlanError(f"{self.file}:{place.group(1) if place else 1}: no TOML: {e}") from e
        self.places = _places(text)
        self.asked: set[str] = set()

    def root(self) -> Table:
        plain = {k: v for k, v in self.data.items() if not isinstance(v, dict) and not _is_tables(v)}
        return Table(self.file, "", plain, 1, self.places.get("", (1, {}))[1])

    def table(self, name: str, required: bool = True) -> Table | None:
        self.asked.add(name)
        if name not in self.data:
            if required:
                raise PlanError(f"{self.file}:1: [{name}]: this table is missing")
            return None
        value = self.data[name]
        line, lines = self.places.get(name, (1, {}))
        if not isinstance(value, dict):
            raise PlanError(f"{self.file}:{line}: {name}: must be a table, [{name}]")
        return Table(self.file, name, value, line, lines)

    def tables(self, name: str, at_most: int) -> list[Table]:
        self.asked.add(name)
        value = self.data.get(name, [])
        if not _is_tables(value):
            raise PlanError(f"{self.file}:{self.places.get(name, (1, {}))[0]}: {name}: must be tables, [[{name}]]")
        if len(value) > at_most:
            raise PlanError(f"{self.file}: {len(value)} tables [[{name}]]; at most {at_most}")
        found = []
        for i, data in enumerate(value):
            line, lines = self.places.get(f"{name}#{i}", (1, {}))
            found.append(Table(self.file, f"{name}[{i + 1}]", data, line, lines))
        return found

    def done(self) -> None:
        for name, value in self.data.items():
            if name not in self.asked and (isinstance(value, dict) or _is_tables(value)):
                line = self.places.get(name, self.places.get(f"{name}#0", (1, {})))[0]
                raise PlanError(f"{self.file}:{line}: [{name}]: no such table; known: {', '.join(sorted(self.asked))}")


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, dict) for v in value)


def _places(text: str) -> dict[str, tuple[int, dict[str, int]]]:
    """Table name (`load#0` for the first of an array) -> its line and the lines of its keys."""
    places: dict[str, tuple[int, dict[str, int]]] = {"": (1, {})}
    counts: dict[str, int] = {}
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := _HEAD.match(line):
            name = head.group(2).strip().strip("\"'")
            current = name
            if head.group(1) == "[[":
                current = f"{name}#{counts.get(name, 0)}"
                counts[name] = counts.get(name, 0) + 1
            places.setdefault(current, (number, {}))
        elif key := _KEY.match(line):
            places[current][1].setdefault(key.group(1), number)
    return places
