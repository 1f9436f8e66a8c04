"""What a run leaves behind: one JSONL file, and the types that everything else reads it through.

Vocabulary
    run         one invocation of `lab run` (with its resumptions); a directory with `run.jsonl` and `raw/`
    study       an experiment of the published studies: `matrix`, `boot`, ... (STUDIES)
    back end    what is measured: `ceph:1` is a kind and a number of copies
    case        the factors of one measurement: {"bs": 4096, "read": 0, "depth": 8}
    round       the n-th pass over all cases and back ends; rounds interleave the back ends
    sample      one value of one metric, from one measurement of one case on one back end in one round

Format of run.jsonl: one JSON object a line, whose `type` names it; only ever appended to.
    run          the head: id, studies, options, when; always the first line
    environment  machine and versions; again at each resumption
    backend      a back end's state changed: ready, done, skipped (cannot run here), failed (broke while it ran)
    result       one measurement: study, back end, case, round, and a value for each metric, or the error; it is read as one
                 Sample a metric (of a failed one: a single sample with ok=false and value=None); of a site also `hosts`, what each
                 host did (HOST_METRICS), which is read as ByHost
    end          the run came to its end (again, after a resumption), how long it took and how long it waited for its turn;
                 a run without it was interrupted

Beside it in raw/: the tools' own outputs (`STUDY.jsonl.gz`), and of each measurement by fio the distribution of latencies and the
course over time (`STUDY.curves.jsonl.gz`, read by `load_curves`).

Invariants: a file cut anywhere loads (only its last, incomplete line is dropped); a measurement that failed is
in the file; samples of one measurement share backend, study, case, round and started. Does not judge or
summarise anything: that is stats and report.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Union

Factor = Union[str, int, float]
RUN_FILE = "run.jsonl"
RAW_DIR = "raw"
VERSION = 1
CURVES_MAX = 20_000  # of one study, that a report reads


class RecordError(Exception):
    """A run file that is none, or one of another version; the message names file and line."""


# --- the vocabulary: one row per metric, factor, study ------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """`better` is "higher", "lower", or "" where neither is better as such."""

    name: str
    unit: str
    better: str
    title: str


_METRICS = [
    Metric("iops", "1/s", "higher", "operations per second, reads and writes together"),
    Metric("host_iops_min", "1/s", "higher", "operations per second of the client host that did fewest"),
    Metric("host_iops_max", "1/s", "", "operations per second of the client host that did most"),
    Metric("iops_per_client", "1/s", "higher", "operations per second of one client (a VM's disk), their mean"),
    Metric("client_iops_min", "1/s", "higher", "operations per second of the client that did fewest"),
    Metric("client_iops_max", "1/s", "", "operations per second of the client that did most"),
    Metric("iops_per_host", "1/s", "higher", "operations per second of one client host, their mean"),
    Metric("read_iops", "1/s", "higher", "reads per second"),
    Metric("write_iops", "1/s", "higher", "writes per second"),
    Metric("bandwidth", "B/s", "higher", "bytes per second, reads and writes together"),
    Metric("latency_mean", "us", "lower", "mean completion latency"),
    Metric("latency_p50", "us", "lower", "median completion latency"),
    Metric("latency_p99", "us", "lower", "99th percentile of completion latency"),
    Metric("latency_p999", "us", "lower", "99.9th percentile of completion latency, where ten operations lie beyond it"),
    Metric("latency_max", "us", "lower", "longest completion latency"),
    Metric("server_cores", "cores", "lower", "processor used by the storage servers"),
    Metric("other_cores", "cores", "", "processor used meanwhile by the other back ends' servers, which are at rest"),
    Metric("client_cores", "cores", "lower", "processor used by the load generator and its client library"),
    Metric("server_cpu_per_op", "us", "lower", "processor time of the storage servers per operation"),
    Metric("server_memory", "B", "lower", "memory of the storage servers (resident, proportional share)"),
    Metric("osd_memory", "B", "lower", "memory of one OSD, their mean; Skep in one process: its share of the process, monitor and gateways included"),
    Metric("mon_memory", "B", "lower", "memory of monitor, manager and other daemons that are no OSD"),
    Metric("cpu_user", "cores", "", "processors in user mode, whole machine, guests not included"),
    Metric("cpu_system", "cores", "", "processors in the kernel, whole machine"),
    Metric("cpu_softirq", "cores", "", "processors in interrupts (hard and soft), whole machine"),
    Metric("cpu_guest", "cores", "", "processors in guests' own code, whole machine (KVM alone; emulated guests are user time)"),
    Metric("server_written", "B", "lower", "bytes that the storage servers gave to the disk"),
    Metric("write_amplification", "1", "lower", "bytes that the servers wrote to disk per byte the client wrote"),
    Metric("run_time", "s", "lower", "time of the whole benchmark inside the VM"),
    Metric("create_time", "s", "lower", "time until the VM's disk exists"),
    Metric("boot_time", "s", "lower", "time from starting the VM until its init reports"),
    Metric("delete_time", "s", "lower", "time to end the VM and delete its disk"),
    Metric("download_time", "s", "lower", "fetch the image from the image store"),
    Metric("convert_time", "s", "lower", "convert the image to the format of the VM's disk"),
    Metric("resize_time", "s", "lower", "grow the disk to the VM's size"),
    Metric("overlay_time", "s", "lower", "make the overlay, or the clone"),
    Metric("provision_time", "s", "lower", "from request until the disks of all VMs exist"),
    Metric("batch_boot_time", "s", "lower", "time until the last VM of the batch reports"),
    Metric("migration_time", "s", "lower", "live migration, from the command until it completed"),
    Metric("migration_pause", "ms", "lower", "time for which the guest stood still"),
    Metric("migration_bytes", "B", "lower", "bytes moved between the two hosts, memory and disks"),
    Metric("stall", "s", "lower", "longest time for which the client saw no I/O complete"),
    Metric("stall_censored", "1", "", "stalls that lasted until the server was back: the stall is at least as long as the outage"),
    Metric("stall_before", "s", "lower", "the same in the undisturbed time before the fault"),
    Metric("recovery_time", "s", "lower", "from the server's return until all copies are whole"),
    Metric("rebuild_latency_p99", "us", "lower", "99th percentile of latency while copies are rebuilt"),
    Metric("rebuild_latency_p50", "us", "lower", "median latency while copies are rebuilt"),
    Metric("before_latency_p99", "us", "lower", "99th percentile of latency before the fault"),
    Metric("before_latency_p50", "us", "lower", "median latency before the fault"),
    Metric("outage_latency_p99", "us", "lower", "99th percentile of latency while the server is away"),
    Metric("outage_latency_p50", "us", "lower", "median latency while the server is away"),
    Metric("after_latency_p99", "us", "lower", "99th percentile of latency once all copies are whole again"),
    Metric("after_latency_p50", "us", "lower", "median latency once all copies are whole again"),
    Metric("errors", "1", "lower", "I/O errors that the client saw"),
]
METRICS: dict[str, Metric] = {m.name: m for m in _METRICS}


# What is told of each host of a site: name -> (unit, title). `client_...` is of the load generator and the programs beside it,
# `server_...` of the storage's processes, the rest of the whole host.
HOST_METRICS = {
    "iops": ("1/s", "operations per second"),
    "bandwidth": ("B/s", "bytes per second, reads and writes"),
    "latency_mean": ("us", "mean latency"),
    "latency_p50": ("us", "median latency"),
    "latency_p99": ("us", "99th percentile of latency"),
    "client_user": ("cores", "client, processor in user mode"),
    "client_system": ("cores", "client, processor in the kernel"),
    "client_written": ("B/s", "bytes that client processes gave to disks"),
    "server_user": ("cores", "servers, processor in user mode"),
    "server_system": ("cores", "servers, processor in the kernel"),
    "server_written": ("B/s", "bytes that server processes gave to disks"),
    "server_memory": ("B", "servers, memory"),
    "host_busy": ("%", "processors busy"),
    "host_softirq": ("%", "processors in interrupts"),
    "disk_read": ("B/s", "read from disks"),
    "disk_written": ("B/s", "written to disks"),
    "net_in": ("B/s", "received from the network"),
    "net_out": ("B/s", "sent to the network"),
}


@dataclass(frozen=True)
class FactorInfo:
    """`unit` as of Metric; "" for a name or a plain number."""

    name: str
    unit: str
    title: str


_FACTORS = [
    FactorInfo("bs", "B", "block size"),
    FactorInfo("read", "%", "share of reads"),
    FactorInfo("depth", "", "operations in flight per client"),
    FactorInfo("clients", "", "clients"),
    FactorInfo("op", "", "operation: write, rewrite, read, reread, randwrite, randread; put, get, list, delete; create, stat, readdir, rename, unlink"),
    FactorInfo("work", "", "work inside a VM: iozone (its pattern), seq, rand"),
    FactorInfo("image", "B", "size of the image"),
    FactorInfo("disk", "", "kind of disk"),
    FactorInfo("object", "B", "size of an object"),
    FactorInfo("files", "", "files in a client's directory"),
    FactorInfo("flushed", "", "whether each change is flushed (fsync of its directory): yes, no"),
    FactorInfo("record", "B", "record size"),
    FactorInfo("format", "", "disk format: raw, qcow2, qed, rbd"),
    FactorInfo("vms", "", "virtual machines"),
    FactorInfo("hosts", "", "hosts"),
    FactorInfo("storage", "", "shared or local"),
    FactorInfo("accel", "", "how the guest's processor runs: kvm or tcg"),
    FactorInfo("stripe_unit", "B", "stripe unit"),
    FactorInfo("stripe_count", "", "stripe count"),
    FactorInfo("threads", "", "threads"),
    FactorInfo("delay", "ms", "network delay added"),
    FactorInfo("fault", "", "what is done to a server: kill, hang"),
    FactorInfo("writes", "", "how much the guest writes: a size, or for how long"),
    FactorInfo("instrument", "", "program that measured: fio, iozone"),
]
FACTORS: dict[str, FactorInfo] = {f.name: f for f in _FACTORS}


@dataclass(frozen=True)
class StudyInfo:
    """A study; `headline` metrics come first in a report, `x` is the factor along a figure's axis, `panels` the
    factors that make a figure of their own for each value. The figures of the source are in `published`."""

    name: str
    title: str
    source: str
    headline: tuple[str, ...]
    x: str
    panels: tuple[str, ...]
    published: str


@dataclass(frozen=True)
class Published:
    """A value that a study prints, for cases that have these factors; drawn into reports of runs of its preset."""

    preset: str
    study: str
    metric: str
    value: float  # in the metric's unit
    label: str
    case: tuple[tuple[str, Factor], ...] = ()
    line: bool = False  # drawn as a line across a panel rather than as a row beside the measured cases


# Only what our notes of the papers have (lab/docs/quotations.md says where each was checked). Each is of other machines. Of how many threads
# Borges et al.'s bandwidths are, and of which mix Ra's operations of a VM and of a host, the notes do not say: they are lines across panels.
PUBLISHED = [
    Published("oliveira", "boot", "bandwidth", 25e6, "Oliveira: Ceph, about"),
    Published("oliveira", "boot", "bandwidth", 5e6, "Oliveira: BeeFS, about"),
    Published("oliveira", "boot", "delete_time", 2.3, "Oliveira: both, about"),
    Published("ding", "migrate", "migration_time", 121.4, "Ding et al.: local disks"),
    Published("ding", "migrate", "migration_time", 1.0, "Ding et al.: shared, about"),
    *(Published("borges", "layouts", "bandwidth", value * 1e6, f"Borges et al.: {what}", (("op", op), ("bs", 4194304)), line=True)
      for what, values in (("NFS", (127, 129, 191, 122)), ("CephFS", (131, 112, 205, 205)))
      for op, value in zip(("write", "randwrite", "read", "randread"), values)),
    Published("ra", "matrix", "iops_per_client", 18_000, "Ra: a VM, about", (("bs", 4096),), line=True),
    Published("ra", "matrix", "iops_per_host", 80_000, "Ra: a host, about", (("bs", 4096),), line=True),
    Published("ra", "matrix", "osd_memory", 150e6, "Ra: an OSD from"),
    Published("ra", "matrix", "osd_memory", 800e6, "to"),
    Published("ra", "matrix", "iops", 76_446, "Ra", (("bs", 4096), ("read", 0))),
    Published("ra", "matrix", "iops", 675_363, "Ra", (("bs", 4096), ("read", 100))),
]


_STUDIES = [
    StudyInfo(
        "matrix",
        "fio over block size, read share, depth and clients",
        "Ra: an all-flash hyper-converged cloud on Ceph",
        ("iops", "bandwidth", "latency_p99", "server_cpu_per_op", "server_memory"),
        "read",
        ("bs", "depth", "clients", "hosts"),
        "4 KiB: 76,446 IOPS at 100 % writes to 675,363 at 100 % reads; at 100 % writes the OSDs are over 90 % of the processor time consumed on the nine storage hosts",
    ),
    StudyInfo(
        "boot",
        "a VM's life: create, boot, 4 KiB synchronous random writes, delete",
        "Oliveira 2019: BeeFS against Ceph RBD under Nova",
        ("bandwidth", "boot_time", "delete_time", "run_time", "create_time"),
        "",
        (),
        "Ceph about 25,000 KB/s, BeeFS about 5,000 KB/s; deletion about 2.3 s on both",
    ),
    StudyInfo(
        "vm",
        "inside a VM: sequential throughput, random IOPS, iozone's pattern",
        "Ding et al.: RBD for Glance, Nova and Cinder; Johari et al.: iozone",
        ("bandwidth", "latency_p99"),
        "bs",
        ("work", "op", "depth"),
        "",
    ),
    StudyInfo(
        "formats",
        "iozone pattern over disk formats",
        "Johari et al.: GlusterFS against Ceph RBD under OpenNebula",
        ("bandwidth",),
        "record",
        ("op",),
        "RBD wins at 4 and 8 KiB write and rewrite, GlusterFS from 16 to 256 KiB",
    ),
    StudyInfo(
        "provision",
        "time until the disks of many VMs exist, and until they have booted",
        "Ding et al.: RBD for Glance, Nova and Cinder",
        ("provision_time", "batch_boot_time", "download_time", "convert_time", "resize_time", "overlay_time"),
        "vms",
        ("hosts",),
        "a model of the time to boot: a clone against download, convert, resize and overlay",
    ),
    StudyInfo(
        "migrate",
        "live migration over shared and over local storage",
        "Ding et al.: RBD for Glance, Nova and Cinder",
        ("migration_time", "migration_pause", "migration_bytes"),
        "",
        (),
        "121.4 s on local disks, about 1 s on shared ones",
    ),
    StudyInfo(
        "layouts",
        "bandwidth of files over stripe unit, stripe count, block size and threads",
        "Borges et al. 2017: CephFS for physics",
        ("bandwidth",),
        "stripe_unit",
        ("op", "bs", "threads", "stripe_count", "delay", "hosts"),
        "bandwidth grows until the stripe unit reaches the block size; the stripe count has no effect",
    ),
    StudyInfo(
        "metadata",
        "metadata of files: create, stat, readdir, rename, unlink",
        "asked by operators of CephFS (Borges et al. complain of its metadata server); our notes of the five studies have no figures of it",
        ("iops", "latency_p50", "latency_p99", "server_cpu_per_op"),
        "clients",
        ("op", "files", "flushed", "hosts"),
        "",
    ),
    StudyInfo(
        "objects",
        "objects over S3: put, get, list, delete",
        "asked by operators; our notes of the five studies have no figures of it",
        ("iops", "bandwidth", "latency_p50", "latency_p99", "server_cpu_per_op"),
        "object",
        ("op", "clients"),
        "",
    ),
    StudyInfo(
        "failure",
        "what the client sees when a server is killed or hangs, and while copies are rebuilt",
        "asked by operators; our notes of the five studies have no figures of it",
        ("stall", "recovery_time", "rebuild_latency_p99", "errors"),
        "",
        ("fault",),
        "",
    ),
]
STUDIES: dict[str, StudyInfo] = {s.name: s for s in _STUDIES}


# --- the records ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    study: str
    backend: str  # "ceph:1": kind and copies
    case: dict[str, Factor]
    metric: str
    value: float | None  # None only where ok is false
    unit: str
    round: int  # from 0
    started: str  # ISO 8601, UTC, of the measurement
    ok: bool = True
    error: str = ""
    raw: str = ""  # the tool's own output, relative to the run's directory; "" where there is none


@dataclass(frozen=True)
class ByHost:
    """What each host of a site did in one measurement: host -> HOST_METRICS -> value."""

    study: str
    backend: str
    case: dict[str, Factor]
    round: int
    hosts: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Curves:
    """What one measurement was like inside: `distribution` by side ("read", "write") as (latency up to [us], operations), ascending;
    `course`: operations per second in each step of `step` seconds."""

    distribution: dict[str, list[tuple[float, int]]]
    step: float
    course: list[float]


@dataclass(frozen=True)
class Measured:
    """Curves with the measurement that they belong to."""

    backend: str
    case: dict[str, Factor]
    round: int
    curves: Curves


@dataclass(frozen=True)
class BackendState:
    """The last state of a back end counts. state: ready, done, skipped, failed; reason where it is not good."""

    name: str
    study: str
    state: str
    reason: str = ""
    title: str = ""  # for people: "Ceph RBD, 1 copy"
    version: str = ""
    options: dict[str, Any] = field(default_factory=dict)  # settings that matter: cache, sync, size
    at: str = ""


@dataclass(frozen=True)
class Environment:
    """Of the machine that ran it. `tools` maps program to version line; `notes` are sentences for the report,
    such as that the guests' processors were emulated."""

    host: str = ""
    kernel: str = ""
    system: str = ""
    cpu: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    disk: str = ""
    filesystem: str = ""
    virtual: str = ""
    load_before: float = 0.0
    governor: str = ""
    tools: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    at: str = ""


@dataclass
class Run:
    id: str
    started: str
    studies: list[str]
    options: dict[str, Any]
    environments: list[Environment] = field(default_factory=list)
    backends: list[BackendState] = field(default_factory=list)  # in order of their events
    samples: list[Sample] = field(default_factory=list)
    by_host: list[ByHost] = field(default_factory=list)
    ended: str = ""
    end_state: str = "interrupted"  # "complete", "partial" (said why in backends), "interrupted"
    end_reason: str = ""
    path: Path | None = None

    @property
    def environment(self) -> Environment:
        return self.environments[-1] if self.environments else Environment()

    def last_states(self) -> dict[tuple[str, str], BackendState]:
        """(study, back end) -> its last state, in order of first appearance."""
        last: dict[tuple[str, str], BackendState] = {}
        for b in self.backends:
            last[(b.study, b.name)] = b
        return last


def _from(cls: type, data: dict[str, Any]) -> Any:
    """A dataclass out of a JSON object; keys that a later version added are ignored."""
    names = {f.name for f in fields(cls)}
    return cls(**{k: v for k, v in data.items() if k in names})


def run_file(path: Path) -> Path:
    return path / RUN_FILE if path.is_dir() else path


def load_run(path: Path | str) -> Run:
    """Reads a run's directory or file, also one that was cut short."""
    file = run_file(Path(path))
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as e:
        raise RecordError(f"{file}: {e.strerror}") from e
    run: Run | None = None
    last = max((n for n, line in enumerate(lines, 1) if line.strip()), default=0)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            run = _take(run, data, file)
        except (ValueError, TypeError, KeyError) as e:
            # Only a file's last line can be cut, by a kill in the middle of the write.
            if number == last and run is not None and not file_ends_whole(lines):
                break
            raise RecordError(f"{file}:{number}: not a record of a run: {e}") from e
    if run is None:
        raise RecordError(f"{file}: empty, no run in it")
    return run


def _samples_of(data: dict[str, Any]) -> list[Sample]:
    """The samples of one measurement; units come from METRICS, except those that the record names."""
    common = (data["study"], data["backend"], data["case"])
    rest = (data["round"], data["started"])
    error, raw = data.get("error", ""), data.get("raw", "")
    units = data.get("units", {})
    found = []
    for metric, value in data["values"].items():
        if metric not in METRICS and metric not in units:
            raise ValueError(f"no metric {metric!r}")
        unit = units.get(metric) or METRICS[metric].unit
        found.append(Sample(*common, metric, value, unit, *rest, ok=not error, error=error, raw=raw))
    return found


def curves_file(directory: Path, study: str) -> Path:
    return directory / RAW_DIR / f"{study}.curves.jsonl.gz"


def load_curves(run: Run, study: str) -> list[Measured]:
    """Of the first CURVES_MAX measurements; one that was repeated counts once, with its last. A file that was cut gives what is whole."""
    path = curves_file(run.path, study) if run.path else None
    if path is None or not path.exists():
        return []
    found: dict[str, Measured] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        try:
            for line in lines:
                d = json.loads(line)
                curves = Curves({k: [(float(us), int(n)) for us, n in v] for k, v in d["distribution"].items()}, float(d["step"]), [float(v) for v in d["course"]])
                found[json.dumps([d["backend"], d["case"], d["round"]])] = Measured(d["backend"], d["case"], int(d["round"]), curves)
                if len(found) >= CURVES_MAX:
                    break
        except (EOFError, OSError, ValueError, KeyError, TypeError, zlib.error):
            pass
    return list(found.values())


def keep_curves(directory: Path, study: str, measured: Measured) -> None:
    """A gzip member for each, so that a cut loses only the last."""
    c = measured.curves
    line = {"backend": measured.backend, "case": measured.case, "round": measured.round, "step": c.step,
            "distribution": {k: [[float(f"{us:.6g}"), n] for us, n in v] for k, v in c.distribution.items()}, "course": [float(f"{v:.6g}") for v in c.course]}
    with open(curves_file(directory, study), "ab") as f:
        f.write(gzip.compress((json.dumps(line, separators=(",", ":")) + "\n").encode(), mtime=0))


def file_ends_whole(lines: list[str]) -> bool:
    return lines[-1] == ""


def _take(run: Run | None, data: Any, file: Path) -> Run:
    if not isinstance(data, dict):
        raise ValueError("a line is not a JSON object")
    kind = data.get("type")
    if kind == "run":
        if data.get("version") != VERSION:
            raise ValueError(f"version {data.get('version')} of the format; this lab reads {VERSION}")
        if run is not None:
            raise ValueError("a second head")
        return Run(data["id"], data["started"], list(data["studies"]), dict(data.get("options", {})), path=file.parent)
    if run is None:
        raise ValueError("the first line is not a run's head")
    if kind == "environment":
        run.environments.append(_from(Environment, data))
    elif kind == "backend":
        run.backends.append(_from(BackendState, data))
    elif kind == "result":
        run.samples.extend(_samples_of(data))
        if hosts := data.get("hosts"):
            run.by_host.append(ByHost(data["study"], data["backend"], data["case"], data["round"], {h: dict(v) for h, v in hosts.items()}))
    elif kind == "end":
        run.ended, run.end_state, run.end_reason = data["at"], data["state"], data.get("reason", "")
    elif kind == "resume":
        run.ended, run.end_state, run.end_reason = "", "interrupted", ""
    return run


class RunWriter:
    """Appends records, each durable before the next measurement starts: what a kill leaves is what was measured."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / RAW_DIR).mkdir(exist_ok=True)
        self.path = directory / RUN_FILE
        _drop_cut_line(self.path)
        self._file = open(self.path, "a", encoding="utf-8")

    def head(self, run_id: str, started: str, studies: list[str], options: dict[str, Any]) -> None:
        self._put({"type": "run", "version": VERSION, "id": run_id, "started": started, "studies": studies, "options": options})

    def resume(self, at: str) -> None:
        self._put({"type": "resume", "at": at})

    def environment(self, environment: Environment) -> None:
        self._put({"type": "environment", **asdict(environment)})

    def backend(self, state: BackendState) -> None:
        self._put({"type": "backend", **asdict(state)})

    def samples(self, samples: list[Sample], hosts: dict[str, dict[str, float]] | None = None) -> None:
        """Grouped into one record for each measurement; `hosts`: of the one measurement that they are of."""
        records: dict[str, dict[str, Any]] = {}
        for s in samples:
            head = {"type": "result", "study": s.study, "backend": s.backend, "case": s.case, "round": s.round, "started": s.started}
            head |= {k: v for k, v in (("error", s.error or ("" if s.ok else "no reason given")), ("raw", s.raw)) if v}
            record = records.setdefault(json.dumps(head), {**head, "values": {}})
            record["values"][s.metric] = None if s.value is None else float(f"{s.value:.9g}")
            if s.metric not in METRICS or METRICS[s.metric].unit != s.unit:
                record.setdefault("units", {})[s.metric] = s.unit
        if hosts:
            kept = {h: {k: float(f"{v:.6g}") for k, v in own.items()} for h, own in hosts.items()}
            records = {k: {**r, "hosts": kept} for k, r in records.items()}
        self._put(*records.values())

    def end(self, at: str, state: str, reason: str = "", seconds: dict[str, float] | None = None) -> None:
        self._put({"type": "end", "at": at, "state": state, "reason": reason, **(seconds or {})})

    def _put(self, *records: dict[str, Any]) -> None:
        self._file.write("".join(json.dumps(r, separators=(",", ":"), ensure_ascii=False) + "\n" for r in records))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _drop_cut_line(path: Path) -> None:
    """Before a resumption: a line that a kill cut is taken away, so that the file stays one record a line."""
    if not path.exists():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with open(path, "r+b") as f:
            f.truncate(data.rfind(b"\n") + 1)
