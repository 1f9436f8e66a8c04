"""What a plan is made from: the site's wishes, a host, a disk, the storage's figures, prices. Read from TOML.

Units are in the names: TB is 10^12 bytes, KiB 1024, MB/s 10^6 bytes a second, Gbit/s 10^9 bits a second.
Figures of the storage are entered ([storage] cpu_...) or taken from a run of the lab ([storage] run, backend).
Invariants: every value is bounded and finite; an unknown or missing key is refused with file, line and key.
Computes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from lab.plan_toml import Document, PlanError, Table
from lab.records import load_run
from lab.report_data import views
from lab.stats import Interval

MAX_LOADS = 50
MAX_CPU_POINTS = 50
KIB = 1024


@dataclass(frozen=True)
class Load:
    """At the start, for one site. `busy_percent` is the share of the day at this rate, for endurance only."""

    name: str
    block_kib: float
    read_percent: float
    iops: float
    busy_percent: float


@dataclass(frozen=True)
class Site:
    name: str
    sites: int
    years: int
    usable_tb: float
    growth_percent: float
    vms: int
    vcpus_per_vm: float
    vcpus_per_thread: float
    memory_per_vm_gib: float


@dataclass(frozen=True)
class Redundancy:
    """Copies, or data + parity; `domains` are the racks (0: every host is a failure domain of its own)."""

    copies: int
    data: int
    parity: int
    racks: int
    fill_percent: float
    heal_percent: float
    system: str = ""  # whose code: "ceph", or "" for the model's own
    stripe_kib: float = 64.0  # of a code: bytes of one object that lie on one disk before the next

    @property
    def erasure(self) -> bool:
        return self.data > 0

    @property
    def width(self) -> int:
        return self.data + self.parity if self.erasure else self.copies

    @property
    def overhead(self) -> float:
        """Raw bytes per usable byte."""
        return self.width / self.data if self.erasure else float(self.copies)


@dataclass(frozen=True)
class Host:
    threads: int
    memory_gib: float
    disk_slots: int
    network_gbit: float
    reserved_threads: float
    reserved_memory_gib: float
    price: float
    power_w: float


@dataclass(frozen=True)
class Disk:
    capacity_tb: float
    read_iops: float
    write_iops: float
    read_mb_s: float
    write_mb_s: float
    writes_per_day: float
    price: float
    power_w: float


@dataclass(frozen=True)
class CpuPoint:
    """Processor time of all servers together for one client operation at this block size."""

    block_kib: float
    read_us: float
    write_us: float


@dataclass(frozen=True)
class Storage:
    name: str
    source: str  # "entered", or the run it was measured in
    cpu: tuple[CpuPoint, ...]
    measured_width: float  # copies that the servers kept when cpu was measured
    write_amplification: float
    memory_per_disk_gib: float
    memory_per_tb_gib: float
    vm_iops_max: float  # what one VM can drive; 0: not known
    # The same with all measured figures at the low and at the high ends of their intervals; empty where figures were entered.
    cpu_low: tuple[CpuPoint, ...] = ()
    cpu_high: tuple[CpuPoint, ...] = ()
    amplification_low: float = 0.0
    amplification_high: float = 0.0


@dataclass(frozen=True)
class Limits:
    processor: float
    disk: float
    network: float


@dataclass(frozen=True)
class Network:
    """Switches of one site: as many as its hosts' ports ask for, and no fewer than `switches_min`."""

    ports_per_host: int
    switch_ports: int
    switches_min: int
    switch_price: float
    switch_power_w: float
    port_price: float  # adapter's share, transceivers and cable of one host port


@dataclass(frozen=True)
class Prices:
    currency: str
    source: str
    lifetime_years: float
    hardware_support_percent: float
    software_per_host: float
    software_per_raw_tb: float
    power_per_kwh: float
    pue: float
    development_per_year: float
    people: float
    people_per_site: float
    salary: float
    network: Network | None = None


@dataclass(frozen=True)
class Inputs:
    file: str
    site: Site
    loads: tuple[Load, ...]
    redundancy: Redundancy
    host: Host
    dedicated: Host
    disk: Disk
    storage: Storage
    limits: Limits
    prices: Prices


def read(path: Path) -> Inputs:
    doc = Document(path)
    doc.root().text("title", "")
    root = doc.root()
    root.taken.add("title")
    root.done()
    prices_table = _need(doc.table("prices"))
    prices_doc = Document(doc.path.parent / prices_table.text("file"))
    prices_table.done()
    host_table, dedicated_table = _need(doc.table("host")), doc.table("dedicated_host", required=False)
    host = _host(host_table, _need(prices_doc.table("host")))
    dedicated_price = prices_doc.table("dedicated_host", required=False)
    if dedicated_table is not None and dedicated_price is None:
        raise PlanError(f"{prices_doc.file}:1: [dedicated_host]: this table is missing, and {doc.file}:{dedicated_table.line} has such a host")
    dedicated = _host(dedicated_table, dedicated_price) if dedicated_table and dedicated_price else host
    made = Inputs(
        doc.file, _site(_need(doc.table("site"))), _loads(doc), _redundancy(_need(doc.table("redundancy"))), host, dedicated,
        _disk(_need(doc.table("disk")), _need(prices_doc.table("disk"))), _storage(_need(doc.table("storage")), doc), _limits(doc.table("limits", required=False)), _prices(prices_doc),
    )  # fmt: skip
    doc.done()
    prices_doc.done()
    if made.redundancy.erasure and (made.storage.source.startswith("measured: skep") or made.storage.name.lower() == "skep"):
        raise PlanError(f"{doc.file}: [storage] is Skep, which has no erasure coding yet: plan it with copies")
    return made


def _need(table: Table | None) -> Table:
    if table is None:  # Document.table has refused it already
        raise PlanError("a table is missing")
    return table


def _site(t: Table) -> Site:
    made = Site(
        t.text("name", "site"), t.whole("sites", 1, 10_000, 1), t.whole("years", 1, 20, 5), t.number("usable_tb", 0.001, 1e6, unit="TB"),
        t.number("growth_percent", 0, 500, 0), t.whole("vms", 0, 1_000_000, 0), t.number("vcpus_per_vm", 0, 512, 2),
        t.number("vcpus_per_thread", 0.1, 64, 1), t.number("memory_per_vm_gib", 0, 16_384, 4),
    )  # fmt: skip
    t.done()
    return made


def _loads(doc: Document) -> tuple[Load, ...]:
    made = []
    for t in doc.tables("load", MAX_LOADS):
        name, block, mix = t.text("name", t.path), t.number("block_kib", 0.5, 65_536, unit="KiB"), t.number("read_percent", 0, 100)
        iops, rate = t.number("iops", 0, 1e9, 0), t.number("throughput_mb_s", 0, 1e7, 0)
        if (iops > 0) == (rate > 0):
            raise t.error("iops", "give either iops or throughput_mb_s, above 0")
        made.append(Load(name, block, mix, iops or rate * 1e6 / (block * KIB), t.number("busy_percent", 0, 100, 100)))
        t.done()
    return tuple(made)


def _redundancy(t: Table) -> Redundancy:
    kind = t.text("kind", allowed=("copies", "erasure"))
    copies = t.whole("copies", 1, 10) if kind == "copies" else 0
    data, parity, system, stripe = _code(t) if kind == "erasure" else (0, 0, "", 64.0)
    domain = t.text("failure_domain", "host", ("host", "rack"))
    racks = t.whole("racks", 1, 1000) if domain == "rack" else 0
    made = Redundancy(copies, data, parity, racks, t.number("fill_percent", 10, 95, 75), t.number("heal_percent", 10, 100, 90), system, stripe)
    t.done()
    if racks and racks < made.width:
        raise t.error("racks", f"{racks} racks cannot hold {made.width} parts of an object in different racks")
    return made


CEPH_PLUGINS = ("jerasure", "isa")  # both are maximum distance separable: any k of k + m shards give the data
CEPH_STRIPE_KIB = 4.0  # osd_pool_erasure_code_stripe_unit


def _code(t: Table) -> tuple[int, int, str, float]:
    """(data, parity, system, stripe unit in KiB). `profile` is a profile as `ceph osd erasure-code-profile set` takes it."""
    system = t.text("system", "", ("", "ceph", "skep"))
    if system == "skep":
        raise t.error("system", "Skep has no erasure coding yet: plan it with copies")
    if "profile" not in t.data:
        stripe = t.number("stripe_kib", 1, 65_536, CEPH_STRIPE_KIB if system == "ceph" else 64)
        return t.whole("data", 2, 32), t.whole("parity", 1, 8), system, stripe
    words = t.text("profile").split()
    if system != "ceph" or not all("=" in w for w in words):
        raise t.error("profile", 'goes with system = "ceph" and is such as "plugin=isa k=4 m=2 stripe_unit=4K"')
    given = dict(w.split("=", 1) for w in words)
    if (plugin := given.get("plugin", "jerasure")) not in CEPH_PLUGINS:
        raise t.error("profile", f"plugin {plugin} is not modelled ({', '.join(CEPH_PLUGINS)} are): its repairs and its writes ask other disks")
    try:
        k, m, stripe = int(given["k"]), int(given["m"]), _kib(given.get("stripe_unit", "4K"))
    except (KeyError, ValueError) as e:
        raise t.error("profile", f"k and m must be numbers, stripe_unit a size such as 4K: {e}") from e
    if not (2 <= k <= 32 and 1 <= m <= 8 and 1 <= stripe <= 65_536):
        raise t.error("profile", "k is from 2 to 32, m from 1 to 8, stripe_unit from 1K to 64M")
    return k, m, system, stripe


def _kib(text: str) -> float:
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    return int(number) * {"": 1 / KIB, "K": 1, "M": 1024}[unit]


def _host(t: Table, prices: Table) -> Host:
    made = Host(
        t.whole("threads", 1, 4096), t.number("memory_gib", 1, 65_536), t.whole("disk_slots", 1, 1000), t.number("network_gbit", 0.01, 10_000),
        t.number("reserved_threads", 0, 1024, 2), t.number("reserved_memory_gib", 0, 4096, 8), prices.number("price", 0, 1e9), prices.number("power_w", 0, 1e5),
    )  # fmt: skip
    t.done()
    prices.done()
    if made.reserved_threads >= made.threads:
        raise t.error("reserved_threads", f"{made.reserved_threads:g} of {made.threads} threads leave none")
    if made.reserved_memory_gib >= made.memory_gib:
        raise t.error("reserved_memory_gib", f"{made.reserved_memory_gib:g} of {made.memory_gib:g} GiB leave none")
    return made


def _disk(t: Table, prices: Table) -> Disk:
    made = Disk(
        t.number("capacity_tb", 0.001, 1000), t.number("read_iops", 1, 1e8), t.number("write_iops", 1, 1e8), t.number("read_mb_s", 1, 1e6),
        t.number("write_mb_s", 1, 1e6), t.number("writes_per_day", 0.01, 1000, 1), prices.number("price", 0, 1e9), prices.number("power_w", 0, 1e4),
    )  # fmt: skip
    t.done()
    prices.done()
    return made


def _storage(t: Table, doc: Document) -> Storage:
    name, run, measured = t.text("name"), t.text("run", ""), None
    if run:
        measured = _measured(t, doc.path.parent / run, t.text("backend"))
        width, source, cpu = t.number("measured_copies", 1, 32, measured.copies), measured.source, measured.cpu
        # What was measured is bytes on all disks for a client's byte: the copies are in it, and the plan counts them itself.
        amplification = None if measured.written is None else max(1.0, measured.written / width)
    else:
        cpu, amplification, source, width = _entered(t), None, "entered", t.number("measured_copies", 1, 32)
    entered = "write_amplification" in t.data
    made = Storage(
        name, source, cpu, width, t.number("write_amplification", 1, 100, amplification), t.number("memory_per_disk_gib", 0, 1024),
        t.number("memory_per_tb_gib", 0, 1024, 0), t.number("vm_iops_max", 0, 1e8, 0),
    )  # fmt: skip
    t.done()
    if measured is None:
        return made
    ends = [made.write_amplification if entered or v is None else max(1.0, v / width) for v in (measured.written_low, measured.written_high)]
    return replace(made, cpu_low=measured.cpu_low, cpu_high=measured.cpu_high, amplification_low=ends[0], amplification_high=ends[1])


def _entered(t: Table) -> tuple[CpuPoint, ...]:
    """cpu = [[block_kib, read_us, write_us], ...]"""
    t.taken.add("cpu")
    rows = t.data.get("cpu")
    if not isinstance(rows, list) or not 1 <= len(rows) <= MAX_CPU_POINTS:
        raise t.error("cpu", f"needs 1 to {MAX_CPU_POINTS} rows of [block_kib, read_us, write_us], or run and backend")
    points = []
    for row in rows:
        if not isinstance(row, list) or len(row) != 3 or not all(_positive(v) for v in row):
            raise t.error("cpu", f"{row!r} is not [block_kib, read_us, write_us], each above 0")
        points.append(CpuPoint(*map(float, row)))
    points.sort(key=lambda p: p.block_kib)
    if len({p.block_kib for p in points}) < len(points):
        raise t.error("cpu", "a block size is there twice")
    return tuple(points)


def _positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and 0 < value < 1e9


@dataclass(frozen=True)
class _Measured:
    cpu: tuple[CpuPoint, ...]
    cpu_low: tuple[CpuPoint, ...]
    cpu_high: tuple[CpuPoint, ...]
    written: float | None
    written_low: float | None
    written_high: float | None
    copies: float
    source: str


def _measured(t: Table, path: Path, backend: str) -> _Measured:
    """Server processor time per operation at 100 % reads and 100 % writes, of the deepest load of each block size; and the
    most bytes that all disks together took for a byte written by a client; each with the ends of its interval."""
    view = next((v for v in views(load_run(path)) if v.info.name == "matrix"), None)
    if view is None or backend not in {b.name for b in view.measured}:
        had = ", ".join(b.name for b in view.measured) if view else "no study `matrix`"
        raise t.error("backend", f"{backend} has no results in {path}; it has {had}")
    costs: dict[tuple[float, int], tuple[float, Interval]] = {}
    amplification: list[Interval] = []
    for (metric, name, case), cell in view.cells.items():
        f = dict(case)
        if name != backend or cell.interval.median is None or "bs" not in f or f.get("read") not in (0, 100):
            continue
        if metric == "write_amplification" and f["read"] == 0:
            amplification.append(cell.interval)
        elif metric == "server_cpu_per_op":
            key, depth = (float(f["bs"]) / KIB, int(f["read"])), float(f.get("depth", 1)) * float(f.get("clients", 1))
            if key not in costs or (depth, cell.interval.median) > (costs[key][0], costs[key][1].median):
                costs[key] = (depth, cell.interval)
    blocks = sorted({b for b, _ in costs if (b, 0) in costs and (b, 100) in costs})
    if not blocks:
        raise t.error("run", f"{path} has no server_cpu_per_op of {backend} at 0 and at 100 % reads")
    middle, low, high = (tuple(CpuPoint(b, end(costs[(b, 100)][1]), end(costs[(b, 0)][1])) for b in blocks) for end in (_middle, _low, _high))
    if any(p.read_us <= 0 or p.write_us <= 0 for p in middle):
        raise t.error("run", f"{backend} has no processor time of servers in {path}")
    copies = backend.partition(":")[2] or "1"
    worst = max(amplification, key=_middle) if amplification else None
    written = (None, None, None) if worst is None else (_middle(worst), _low(worst), _high(worst))
    return _Measured(middle, low, high, *written, float(copies) if copies.isdigit() else 1.0, f"measured: {backend} in {path.name}")


def _middle(i: Interval) -> float:
    return float(i.median or 0.0)


def _low(i: Interval) -> float:
    return float(i.median or 0.0) if i.low is None else max(1e-9, float(i.low))


def _high(i: Interval) -> float:
    return float(i.median or 0.0) if i.high is None else float(i.high)


def _limits(t: Table | None) -> Limits:
    if t is None:
        return Limits(0.7, 0.7, 0.6)
    made = Limits(t.number("processor_percent", 1, 100, 70) / 100, t.number("disk_percent", 1, 100, 70) / 100, t.number("network_percent", 1, 100, 60) / 100)
    t.done()
    return made


def _network(t: Table | None) -> Network | None:
    if t is None:
        return None
    made = Network(t.whole("ports_per_host", 1, 32, 2), t.whole("switch_ports", 1, 10_000), t.whole("switches_min", 1, 100, 2), t.number("switch_price", 0, 1e7),
                   t.number("switch_power_w", 0, 1e5), t.number("port_price", 0, 1e6, 0))  # fmt: skip
    t.done()
    return made


def _prices(doc: Document) -> Prices:
    t = doc.root()
    general = (t.text("currency"), t.text("source"), t.number("lifetime_years", 1, 20, 5), t.number("hardware_support_percent", 0, 100))
    t.done()
    network = _network(doc.table("network", required=False))
    s, e, p = _need(doc.table("software")), _need(doc.table("energy")), _need(doc.table("people"))
    made = Prices(
        *general, s.number("per_host_year", 0, 1e7), s.number("per_raw_tb_year", 0, 1e6, 0), e.number("per_kwh", 0, 100), e.number("pue", 1, 5),
        p.number("development_per_year", 0, 1e10), p.number("people", 0, 1e5), p.number("people_per_site", 0, 1e3, 0), p.number("salary", 0, 1e8), network,
    )  # fmt: skip
    for used in (s, e, p):
        used.done()
    return made
