"""Runs of the same work on several kinds of disk (`scratch` on each in turn) as one run, whose cases have the factor `disk`.

Back ends are compared on the same disk only, where their rounds were interleaved; disks themselves were measured one after another, so between
them there are figures and no verdicts. Nothing is measured or changed: the new run names those that it is made of.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lab.records import RecordError, RunWriter, keep_curves, load_curves, load_run

LABEL_MAX = 40


class MergeError(RecordError):
    """What cannot be joined; one sentence for the user."""


def parse(words: list[str]) -> dict[str, Path]:
    """NAME=DIR, each name once."""
    found: dict[str, Path] = {}
    for word in words:
        name, sign, path = word.partition("=")
        if not sign or not name or not path or len(name) > LABEL_MAX:
            raise MergeError(f"{word!r}: a kind of disk and its run's directory, such as nvme=runs/matrix-a")
        if name in found:
            raise MergeError(f"{name} is named twice")
        found[name] = Path(path)
    if len(found) < 2:
        raise MergeError("two kinds of disk at least")
    return found


def write(wanted: dict[str, Path], out: Path) -> Path:
    if out.exists() and any(out.iterdir()):
        raise MergeError(f"{out} is there already")
    runs = {name: load_run(path) for name, path in wanted.items()}
    if taken := [name for name, run in runs.items() if any("disk" in s.case for s in run.samples)]:
        raise MergeError(f"{wanted[taken[0]]} has kinds of disk already")
    first = next(iter(runs.values()))
    studies = list(dict.fromkeys(s for run in runs.values() for s in run.studies))
    with RunWriter(out) as writer:
        writer.head(out.name, first.started, studies, {**first.options, "disks": {name: f"{run.id} ({run.environment.disk})" for name, run in runs.items()}})
        notes = [f"Disk {name}: run {run.id} on {run.environment.host}, {run.environment.disk or 'a disk it does not name'}." for name, run in runs.items()]
        writer.environment(replace(first.environment, notes=list(dict.fromkeys([*notes, *(n for run in runs.values() for n in run.environment.notes)]))))
        # What is not good comes last, since a back end's last state counts.
        states = [(run, s) for run in runs.values() for s in run.backends]
        for _, state in sorted(states, key=lambda x: x[0].last_states()[(x[1].study, x[1].name)].state != "done"):
            writer.backend(state)
        for name, run in runs.items():
            writer.samples([replace(s, case={**s.case, "disk": name}, raw="") for s in run.samples])
            for study in run.studies:
                for measured in load_curves(run, study):
                    keep_curves(out, study, replace(measured, case={**measured.case, "disk": name}))
        ended = max(run.ended or run.started for run in runs.values())
        wrong = [f"{name}: {run.end_reason or run.end_state}" for name, run in runs.items() if run.end_state != "complete"]
        writer.end(ended, "partial" if wrong else "complete", "; ".join(wrong))
    return out
