"""The live view of a run: what is measured now, how far each back end is, time left. A table on a terminal, lines elsewhere.

Time left is the number of measurements that are missing, each at the mean of its study and back end so far.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from lab.records import METRICS
from lab.studies.base import Result

FIRST_GUESS_S = 5.0


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
        self.done: dict[tuple[str, str], int] = defaultdict(int)
        self.spent: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.state: dict[tuple[str, str], str] = {}
        self.last: dict[tuple[str, str], str] = {}
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

    def plan(self, study: str, backend: str, count: int, done: int) -> None:
        self.total[study, backend] = count
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
        self.last[key] = f"[red]{error[:80]}[/]" if error else ", ".join(shown)
        if self.lines:
            self.console.print(f"{sum(self.done.values())}/{sum(self.total.values())} {self.left()} {self.now}: {error or ', '.join(shown)} ({seconds:.1f} s)", highlight=False, markup=False, soft_wrap=True)

    def note(self, text: str, only_lines: bool = False) -> None:
        if self.lines or not only_lines:
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def seconds_left(self) -> float:
        every = [s for spent in self.spent.values() for s in spent]
        usual = sum(every) / len(every) if every else FIRST_GUESS_S
        left = 0.0
        for key, total in self.total.items():
            spent = self.spent.get(key)
            left += (total - self.done[key]) * (sum(spent) / len(spent) if spent else usual)
        return left

    def left(self) -> str:
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
            table.add_row(study, backend, self.state.get((study, backend), ""), f"{self.done[study, backend]}/{count}", self.last.get((study, backend), ""))
        return Group(table, self._bar, self.now)
