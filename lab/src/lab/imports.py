"""`lab import`: results of fio that were measured elsewhere, as a run that `report`, `compare` and `plan` read.

Each file is one round of its back end: fio's JSON (`--output-format=json` or `json+`), of one kind of work. Its case is taken from the
jobs' own options: block size, pattern, share of reads, depth, clients. What fio does not know is not made up: servers' processor
and memory are missing, and when a write is answered is what the user says, or unknown, and then writes are not judged.
Invariants: nothing is written before all files are understood; a file that fits no case is refused with its name and the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from lab import fio
from lab.records import METRICS, BackendState, Environment, Factor, Measured, RecordError, RunWriter, Sample, keep_curves

STUDY = "matrix"
FILES_MAX = 10_000
BYTES_MAX = 64 << 20  # of one file
ANSWERED = ("flushed", "sent", "cached")
UNKNOWN = "unknown"
PATTERNS = {"randread": ("", 100), "randwrite": ("", 0), "randrw": ("", None), "read": ("read", 100), "write": ("write", 0), "rw": ("rw", None), "readwrite": ("rw", None)}
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass
class BackEnd:
    """What `NAME=FILE,FILE` and `--acknowledged` say of one back end."""

    name: str
    files: list[Path]
    acknowledged: str = UNKNOWN
    fio: set[str] = field(default_factory=set)


def backends(arguments: list[str], acknowledged: list[str]) -> list[BackEnd]:
    found: dict[str, BackEnd] = {}
    for argument in arguments:
        name, equals, files = argument.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z0-9_.+-]{1,40}(:\d{1,2})?", name) or not files:
            raise RecordError(f"{argument!r} is not NAME:COPIES=FILE[,FILE...], such as ceph:3=a.json,b.json")
        name = name if ":" in name else f"{name}:1"
        found.setdefault(name, BackEnd(name, [])).files += [Path(f) for f in files.split(",")]
    if sum(len(b.files) for b in found.values()) > FILES_MAX:
        raise RecordError(f"more than {FILES_MAX} files")
    for text in acknowledged:
        name, _, kind = text.rpartition("=")
        if kind not in ANSWERED or (name and name not in found):
            raise RecordError(f"--acknowledged {text}: {', '.join(ANSWERED)}, or NAME:COPIES= and one of these, of a back end that is imported")
        for b in found.values():
            if name in ("", b.name):
                b.acknowledged = kind
    return list(found.values())


def write(wanted: list[BackEnd], out: Path) -> Path:
    """The run's directory."""
    if (out / "run.jsonl").exists():
        raise RecordError(f"{out} has a run already")
    results = [(b, path, *_understood(b, path)) for b in wanted for path in b.files]
    started = min(at for *_, at in results)
    rounds: dict[tuple[str, str], int] = {}
    with RunWriter(out) as writer:
        writer.head(out.name, started, [STUDY], {"imported": {b.name: [str(p) for p in b.files] for b in wanted}})
        tools = {"fio": ", ".join(sorted({v for b in wanted for v in b.fio}))}
        writer.environment(Environment(tools=tools, notes=["Imported: measured elsewhere, so the machine, the servers and the order of the measurements are not known here."]))
        for b, path, case, document, at in results:
            key = (b.name, str(case))
            number = rounds[key] = rounds.get(key, -1) + 1
            writer.samples([Sample(STUDY, b.name, case, metric, value, METRICS[metric].unit, number, at) for metric, value in fio.metrics(document).items()])
            keep_curves(out, STUDY, Measured(b.name, case, number, fio.curves(document, "", 0.0)))
        for b in wanted:
            title = f"{b.name.partition(':')[0]}, {b.name.partition(':')[2]} {'copy' if b.name.endswith(':1') else 'copies'}"
            writer.backend(BackendState(b.name, STUDY, "done", "", title, "", {"acknowledged": b.acknowledged}, started))
        writer.end(max(at for *_, at in results), "complete")
    return out


def _understood(b: BackEnd, path: Path) -> tuple[dict[str, Factor], dict[str, Any], str]:
    """(case, document, when)"""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise RecordError(f"{path}: more than {BYTES_MAX >> 20} MiB")
        document = fio.parse(path.read_text(encoding="utf-8", errors="replace"))
        case = case_of(document)
        fio.metrics(document)
    except OSError as e:
        raise RecordError(f"{path}: {e.strerror}") from e
    except fio.FioError as e:
        raise RecordError(f"{path}: {e}") from e
    except (KeyError, TypeError, AttributeError) as e:
        raise RecordError(f"{path}: not fio's JSON: {type(e).__name__} {e}") from e
    b.fio.add(str(document.get("fio version", "")))
    at = datetime.fromtimestamp(float(document.get("timestamp", 0)), timezone.utc).isoformat(timespec="seconds")
    return case, document, at


def case_of(document: dict[str, Any]) -> dict[str, Factor]:
    """The case that all jobs of the file are: clients of one kind of work."""
    common = document.get("global options") or {}
    kinds: list[dict[str, Factor]] = []
    clients = 0
    for job in document["jobs"]:
        options = {**common, **(job.get("job options") or {})}
        kind = _kind(options)
        if kind not in kinds:
            kinds.append(kind)
        clients += _clients(job, options) if "group_reporting" in options or len(document["jobs"]) == 1 else 1
    if len(kinds) != 1:
        raise fio.FioError(f"{len(kinds)} kinds of work in one file ({'; '.join(' '.join(f'{k}={v}' for k, v in kind.items()) for kind in kinds[:4])}): import one kind a file")
    return {**kinds[0], "clients": clients}


def _clients(job: dict[str, Any], options: dict[str, str]) -> int:
    """With group_reporting fio gives one entry for all jobs of the group, with the options of one; their number is in the time that they ran
    all together."""
    longest = max(job[side]["runtime"] for side in ("read", "write"))
    if "job_runtime" in job and longest:
        return max(1, round(job["job_runtime"] / longest))
    return int(options.get("numjobs", 1))


def _kind(options: dict[str, str]) -> dict[str, Factor]:
    pattern = str(options.get("rw") or options.get("readwrite") or "").partition(":")[0]
    if pattern not in PATTERNS:
        raise fio.FioError(f"rw={pattern or '(not said)'} is none of {', '.join(PATTERNS)}")
    op, read = PATTERNS[pattern]
    if read is None:
        read = int(options["rwmixread"]) if "rwmixread" in options else 100 - int(options.get("rwmixwrite", 50))
    if "bssplit" in options or "bsrange" in options:
        raise fio.FioError("several block sizes in one job are no case of the matrix")
    kind: dict[str, Factor] = {"bs": _bytes(str(options.get("bs") or options.get("blocksize") or "4k")), "read": read, "depth": int(options.get("iodepth", 1))}
    return {**kind, "op": op} if op else kind


def _bytes(text: str) -> int:
    m = re.fullmatch(r"(\d+)([kmgKMG]?)(?:i?[bB])?", text)
    if not m:
        raise fio.FioError(f"bs={text} is no single block size")
    return int(m.group(1)) * UNITS[m.group(2).lower()]
