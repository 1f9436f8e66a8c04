"""Runs studies: interleaves back ends, keeps every result at once, goes on when a back end breaks.

Order: study by study; within it round by round, case by case, and for each case all back ends one after another, beginning
with another one in each round. So what drifts (temperature, neighbours, a disk that fills) meets all alike, and rounds
are pairs for the statistics.

Invariants: a measurement is in the file before the next begins; one that is there is not repeated by a resumption; a back
end that fails is named with its reason and left out, the others go on, and the run ends as "partial".
"""

from __future__ import annotations

import fcntl
import gzip
import json
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

from lab import environment
from lab.backends import Backend, Context, Unsupported, parse
from lab.backends.site_gluster import SITE_KINDS
from lab.config import Config
from lab.guest import GuestMaker
from lab.live import View
from lab.process import Scratch, isolate
from lab.records import METRICS, RAW_DIR, BackendState, Measured, Run, RunWriter, Sample, keep_curves
from lab.site import Site, SiteScratch
from lab.site_file import read as read_site
from lab.studies import KINDS
from lab.studies.base import Case, Result, Study

NO_CASE = "the study has no case for it"


class Stopped(Exception):
    """The time that the user gave is over; the run can be resumed."""


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


@dataclass
class Options:
    studies: list[str]
    backends: list[str]  # instead of the configured ones; empty: as configured
    locks: list[Path] = field(default_factory=list)
    stop_after: float = 0.0


class Turn:
    """Locks (flock) that are held while measuring, for machines whose users take turns."""

    def __init__(self, paths: list[Path], seconds: float) -> None:
        self.paths, self.seconds, self.files, self.since = paths, seconds, list[TextIO](), 0.0
        self.waited = 0.0

    def take(self) -> None:
        if self.files and time.monotonic() - self.since < self.seconds:
            return
        self.give()
        asked = time.monotonic()
        for path in self.paths:
            file = open(path, "a")
            fcntl.flock(file, fcntl.LOCK_EX)
            self.files.append(file)
        self.waited += time.monotonic() - asked
        self.since = time.monotonic()

    def give(self) -> None:
        for file in reversed(self.files):
            file.close()
        self.files = []


class Runner:
    def __init__(self, config: Config, options: Options, writer: RunWriter, view: View, earlier: Run | None) -> None:
        self.config, self.options, self.writer, self.view = config, options, writer, view
        self.earlier = earlier
        self.backends: dict[str, Backend] = {}
        self.broken: dict[str, str] = {}  # back end -> why it takes no further part
        self.partial: list[str] = []
        self.left: list[str] = []  # what could not be removed from others' clusters
        self.turn = Turn(options.locks, config.run.turn)
        self.raw_lines: dict[str, int] = {}

    # --- the whole
    def run(self) -> tuple[str, str]:
        """(end state, reason)."""
        self.begun = time.monotonic()
        self.deadline = time.monotonic() + self.options.stop_after if self.options.stop_after else None
        with (SiteScratch if self.config.run.site else Scratch)(Path(self.config.run.scratch)) as scratch:
            self.guests = GuestMaker(self.config, scratch)
            self._make_guest(scratch)
            why = "" if self.config.run.site else isolate(scratch, not self.config.run.network)
            self.context = Context(self.config, scratch, {}, isolated=not why and not self.config.run.site)
            self.studies = [KINDS[name](self.context, self.guests) for name in self.options.studies]
            try:
                notes = self._open_site(scratch)
                self._plan()
                self.writer.environment(environment.collect(self.config, now(), [*self.guests.notes, *([why] if why else []), *notes]))
                for study in self.studies:
                    self._study(study)
            finally:
                self.turn.give()
                self._close()
        said = [*self.partial, *self.left]
        return ("partial", "; ".join(said)) if said else ("complete", "")

    def _open_site(self, scratch: Scratch) -> list[str]:
        """Connects its hosts and starts its services; a sentence for each host."""
        if not self.config.run.site:
            return []
        self.view.starting("the site's hosts")
        kinds = tuple(dict.fromkeys(parse(name)[0].kind for study in self.studies for name in self._asked(study)[0]))
        self.context.site = Site(read_site(Path(self.config.run.site)), scratch, self.config, kinds, tuple(self.options.studies))
        self.context.site.open()
        if self.context.site.no_delay:
            self.partial.append(f"no delay can be added to the way to the servers, and cases with one are left out: {self.context.site.no_delay}")
        return self.context.site.told()

    def _parse(self, name: str) -> tuple[type[Backend], int]:
        kind, copies = parse(name)
        return (SITE_KINDS.get(kind.kind, kind) if self.context.site else kind), copies

    def _missing(self, kind: type[Backend]) -> list[str]:
        """With a site: on its clients."""
        return self.context.site.missing(kind.client_programs) if self.context.site else kind.missing(self.config)

    def _plan(self) -> None:
        """What is to come, for the time that is left: of all studies, before the first server starts."""
        for study in self.studies:
            names, rounds = self._asked(study)
            for name in [] if study.missing() else names:
                kind, copies = self._parse(name)
                if self._missing(kind):
                    continue
                cases = study.cases_of(kind(self.context, copies))
                done = sum(self._is_done(study.name, name, case, r) for case in cases for r in range(rounds))
                self.view.plan(study.name, name, len(cases) * rounds, done, sum(study.seconds(c) for c in cases) * rounds)

    def _asked(self, study: Study) -> tuple[list[str], int]:
        """(back ends, rounds)"""
        settings = getattr(self.config, study.name)
        return self.options.backends or settings.backends or self.config.run.backends, settings.rounds or self.config.run.rounds

    def _close(self) -> None:
        """Whatever happens here, the run ends with what it measured, and its report."""
        for name, backend in self.backends.items():
            try:
                left = backend.close()
            except Exception as e:
                left = f"{name} could not be put away: {one_line(e)}"
            if left:
                self.left.append(left)
                self.view.note(left)
        if self.context.site:
            try:
                stayed = self.context.site.close()
            except Exception as e:
                stayed = [f"the site could not be put away whole: {one_line(e)}; `lab clean --site` looks again"]
            for left in stayed:
                self.left.append(left)
                self.view.note(left)

    def seconds(self) -> dict[str, float]:
        """How long it took, and how much of that was waiting for a turn."""
        return {"seconds": round(time.monotonic() - self.begun, 1), "waited": round(self.turn.waited, 1)}

    def _make_guest(self, scratch: Scratch) -> None:
        """Before the isolation: the image's packages come over the network."""
        if any(name in ("boot", "vm", "provision", "migrate") for name in self.options.studies) and not GuestMaker.missing():
            self.view.note("guest image and accelerator ...", only_lines=True)
            self.view.starting("a trial guest, and the guests' image")
            self.guests.accel()
            self.guests.image()

    # --- one study
    def _study(self, study: Study) -> None:
        names, rounds = self._asked(study)
        if problems := study.missing():
            for name in names:
                self._state(study, name, "skipped", "; ".join(problems))
            return
        self.turn.take()
        taking_part: dict[str, list[Case]] = {}
        for name in names:
            if cases := self._join(study, name, rounds):
                taking_part[name] = cases
        # When this is interrupted the disks are not removed one by one: they go with the servers, and at once.
        self._rounds(study, taking_part, rounds)
        for name in taking_part:
            if name not in self.broken:
                for problem in study.finish(self.backends[name]):
                    self.view.note(f"{study.name} {name}: {problem}")
                self._state(study, name, "done")

    def _join(self, study: Study, name: str, rounds: int) -> list[Case]:
        """Starts the back end; its cases, or none where it takes no part or has nothing left to do."""
        kind, copies = self._parse(name)
        if name in self.broken:
            self._state(study, name, "failed", self.broken[name])
            return []
        if problems := self._missing(kind):
            self._state(study, name, "skipped", "; ".join(problems))
            return []
        try:
            backend = self.backends.get(name) or kind(self.context, copies)
            cases = study.cases_of(backend)
            if not cases:
                self._state(study, name, "skipped", NO_CASE)
                return []
            if all(self._is_done(study.name, name, case, r) for case in cases for r in range(rounds)):
                self._state(study, name, "done")
                return []
            started = time.monotonic()
            self.view.starting(name)
            self.backends[name] = backend  # before it starts: what it has made by then is put away, too
            backend.start()
            self.view.note(f"{name} is up ({time.monotonic() - started:.1f} s)", only_lines=True)
        except Exception as e:
            self._fail(study, name, f"did not start: {one_line(e)}")
            return []
        self._state(study, name, "ready")
        return cases

    def _rounds(self, study: Study, taking_part: dict[str, list[Case]], rounds: int) -> None:
        every: list[Case] = []
        for cases in taking_part.values():
            every += [c for c in cases if c not in every]
        prepared: set[str] = set()
        failures: dict[str, int] = {}
        names = list(taking_part)
        for round in range(rounds):
            for case in every:
                for name in names[round % len(names):] + names[:round % len(names)]:
                    if name in self.broken or case not in taking_part[name] or self._is_done(study.name, name, case, round):
                        continue
                    if self.deadline and time.monotonic() > self.deadline:
                        raise Stopped(f"stopped after {self.options.stop_after:.0f} s, as asked")
                    self.turn.take()
                    self._one(study, self.backends[name], case, round, prepared, failures)

    def _one(self, study: Study, backend: Backend, case: Case, round: int, prepared: set[str], failures: dict[str, int]) -> None:
        name, begun, started = backend.name, now(), time.monotonic()
        self.view.measuring(study.name, name, case, round)
        results: list[Result] = []
        error = ""
        try:
            key = f"{name} {json.dumps(case)}"
            if key not in prepared:
                study.prepare(backend, case)
                prepared.add(key)
            results = study.measure(backend, case, round)
        except Exception as e:
            error = one_line(e)
        seconds = time.monotonic() - started
        self._keep(study, name, case, round, begun, results, error)
        self.view.measured(study.name, name, seconds, results, study.info.headline, error)
        if not error:
            failures[name] = 0
            return
        failures[name] = failures.get(name, 0) + 1
        if gone := backend.alive() or (self.context.site.alive() if self.context.site else ""):
            self._fail(study, name, f"{gone} (round {round + 1})")
        elif failures[name] >= self.config.run.failures_max:
            self._fail(study, name, f"{failures[name]} measurements in a row failed, the last: {error}")
        else:
            self.partial.append(f"{study.name} {name}: a measurement failed: {error}")

    # --- what is written
    def _keep(self, study: Study, name: str, case: Case, round: int, begun: str, results: list[Result], error: str) -> None:
        if error:
            metric = study.info.headline[0]
            self.writer.samples([Sample(study.name, name, case, metric, None, METRICS[metric].unit, round, begun, ok=False, error=error)])
            return
        for result in results:
            raw = self._keep_raw(study.name, name, result, round) if result.raw else ""
            if result.curves:
                keep_curves(self.writer.path.parent, study.name, Measured(name, result.case, round, result.curves))
            self.writer.samples([
                Sample(study.name, name, result.case, metric, value, METRICS[metric].unit, round, begun, raw=raw)
                for metric, value in result.values.items()
            ], result.hosts)

    def _keep_raw(self, study: str, name: str, result: Result, round: int) -> str:
        """Into one file a study: a gzip member for each result, so that a cut loses only the last."""
        path = self.writer.path.parent / RAW_DIR / f"{study}.jsonl.gz"
        if study not in self.raw_lines:
            self.raw_lines[study] = sum(1 for s in {s.raw for s in self.earlier.samples if s.study == study and s.raw}) if self.earlier else 0
        self.raw_lines[study] += 1
        number = self.raw_lines[study]
        line = json.dumps({"n": number, "backend": name, "case": result.case, "round": round, "output": result.raw}) + "\n"
        with open(path, "ab") as f:
            f.write(gzip.compress(line.encode(), mtime=0))
        return f"{RAW_DIR}/{path.name}#{number}"

    def _state(self, study: Study, name: str, state: str, reason: str = "") -> None:
        backend = self.backends.get(name)
        kind, copies = self._parse(name)
        title = backend.describe() if backend else kind.title
        version = backend.version() if backend and state == "ready" else ""
        options = backend.options() if backend and state == "ready" else {}
        if state == "skipped" and reason != NO_CASE:
            self.partial.append(f"{study.name} {name}: {reason}")
        self.writer.backend(BackendState(name, study.name, state, reason, title, version, options, now()))
        self.view.set_state(study.name, name, state, reason)

    def _fail(self, study: Study, name: str, reason: str) -> None:
        self.broken[name] = reason
        self.partial.append(f"{study.name} {name}: {reason}")
        self._state(study, name, "failed", reason)

    def _is_done(self, study: str, name: str, case: Case, round: int) -> bool:
        """Whether the run that is resumed has it: a good sample whose case contains this one."""
        if self.earlier is None:
            return False
        if not hasattr(self, "_have"):
            self._have: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
            for s in self.earlier.samples:
                if s.ok:
                    self._have.setdefault((s.study, s.backend, s.round), []).append(s.case)
        return any(case.items() <= have.items() for have in self._have.get((study, name, round), []))


def one_line(error: BaseException) -> str:
    """An error for a record: its own words; what the user cannot have caused keeps its type."""
    text = " ".join(str(error).split())[:500]
    known = isinstance(error, (Unsupported,)) or type(error).__module__.startswith("lab.")
    return text if known and text else f"{type(error).__name__}: {text}"
