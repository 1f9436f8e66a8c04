"""The live view of a run: what is measured now, how far each back end is, time left. A table on a terminal, lines elsewhere.

Time left is the number of measurements that are missing in all studies, each at the mean of its study and back end so far, or before
the first at the study's own guess.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from lab.records import METRICS
from lab.studies.base import Result


def amount(metric: str, value: float) -> str:
    """A value for people: 12.3 k, 45.6 MB/s, 1.23 s."""
    unit = METRICS[metric].unit if metric in METRICS else ""
    if unit in ("B/s", "1/s", "B"):
        for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if value >= limit:
                return f"{value / limit:.3g} {letter}{'' if unit == '1/s' else unit}"
    return f"{value:.3g} {'' if unit in ('1', '1/s') else unit}".strip()


def describe(case: dict[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in case.items() if k != "accel")


class View:
    def __init__(self, console: Console) -> None:
        self.console = console
        self.lines = not console.is_terminal
        self.total: dict[tuple[str, str], int] = {}
        self.guess: dict[tuple[str, str], float] = {}
        self.done: dict[tuple[str, str], int] = defaultdict(int)
        self.spent: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.state: dict[tuple[str, str], str] = {}
        self.last: dict[tuple[str, str], Text] = {}
        self.now = ""
        self.started = time.monotonic()
        self._bar = Progress(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"), console=console)
        self._task = self._bar.add_task("", total=1, left="")
        self._live: Live | None = None

    def __enter__(self) -> View:
        if not self.lines:
            self._live = Live(console=self.console, refresh_per_second=4, get_renderable=self.render)
            self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live:
            self._live.__exit__(*error)

    def plan(self, study: str, backend: str, count: int, done: int, seconds: float) -> None:
        """`seconds`: a guess of the whole, until measurements say better."""
        self.total[study, backend] = count
        self.guess[study, backend] = seconds / count if count else 0.0
        self.done[study, backend] = done
        self.state.setdefault((study, backend), "waits")

    def set_state(self, study: str, backend: str, state: str, reason: str = "") -> None:
        self.state[study, backend] = state
        if state in ("skipped", "failed"):
            self.total[study, backend] = self.done[study, backend]
        self.note(f"{study} {backend}: {state}{': ' + reason if reason else ''}", only_lines=state == "ready")

    def measuring(self, study: str, backend: str, case: dict[str, Any], round: int) -> None:
        self.now = f"{study}, round {round + 1}: {backend} {describe(case)}"

    def measured(self, study: str, backend: str, seconds: float, results: list[Result], headline: tuple[str, ...], error: str) -> None:
        key = (study, backend)
        self.done[key] += 1
        self.spent[key].append(seconds)
        values = results[-1].values if results else {}
        shown = [f"{m} {amount(m, values[m])}" for m in headline if m in values][:2]
        self.last[key] = Text(error[:80], "red") if error else Text(", ".join(shown))
        if self.lines:
            self.console.print(f"{sum(self.done.values())}/{sum(self.total.values())} {self.left()} {self.now}: {error or ', '.join(shown)} ({seconds:.1f} s)", highlight=False, markup=False, soft_wrap=True)

    def note(self, text: str, only_lines: bool = False) -> None:
        if self.lines or not only_lines:
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def seconds_left(self) -> float:
        left = 0.0
        for key, total in self.total.items():
            spent = self.spent.get(key)
            left += (total - self.done[key]) * (sum(spent) / len(spent) if spent else self.guess.get(key, 0.0))
        return left

    def starting(self, what: str) -> None:
        """Nothing is measured meanwhile."""
        self.now = f"starting {what} ..."

    def left(self) -> str:
        if not self.total:
            return "time left not known yet"
        seconds = int(self.seconds_left())
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d} left"

    def render(self) -> Group:
        total, done = sum(self.total.values()), sum(self.done.values())
        elapsed = int(time.monotonic() - self.started)
        self._bar.update(self._task, total=max(1, total), completed=done, description=f"{done} of {total}", left=f"{elapsed // 60}:{elapsed % 60:02d} gone, {self.left()}")
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in ("study", "back end", "state", "done", "last"):
            table.add_column(column)
        for (study, backend), count in self.total.items():
            table.add_row(study, backend, self.state.get((study, backend), ""), f"{self.done[study, backend]}/{count}", self.last.get((study, backend), Text()))
        return Group(table, self._bar, Text(self.now))
