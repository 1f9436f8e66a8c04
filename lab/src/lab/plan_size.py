"""Hosts and disks for a site, and which limit asks for how many. Formulas with units: docs/cost-model.md.

Vocabulary
    design      converged (VMs and storage on the same hosts) or dedicated (storage hosts apart from VM hosts)
    demand      what the loads ask of disks, processors and network, each second, at the plan's last year
    limit       a resource; `use(N)` is its use on N hosts as a share of what may be used: it holds up to 1
    binding     the limit that alone would need most hosts

Invariants: a design holds every limit with one failure domain lost; every host has as many disks; hosts are
searched from the fewest up, with as few disks as hold. Knows no money.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lab.plan_input import KIB, CpuPoint, Disk, Host, Inputs, Redundancy, Storage
from lab.plan_toml import PlanError

MAX_HOSTS = 5000
SECONDS_A_DAY = 86_400.0


@dataclass(frozen=True)
class Demand:
    """Of one site, each second."""

    reads: float
    writes: float
    read_mb: float
    write_mb: float
    disk_seconds: float  # seconds of disk time, all disks together
    disk_written_mb: float  # at the loads' rates
    disk_written_tb_day: float  # with the share of the day that each load is busy
    threads: float  # processor seconds
    internal_mb: float  # between storage hosts


@dataclass(frozen=True)
class Limit:
    name: str
    use: float  # share of what may be used, at the design
    hosts_alone: int


@dataclass(frozen=True)
class Design:
    kind: str
    storage_hosts: int
    vm_hosts: int  # hosts without storage; 0 where converged
    vms_alone: int  # hosts that the VMs would need without any storage
    disks: int
    disks_per_host: int
    raw_tb: float
    usable_tb: float  # that it could hold at the fill limit
    storage_threads: float  # per site, at full rate
    processor_share: float  # of all threads of the storage hosts, set aside for storage
    memory_gib: float
    memory_share: float
    limits: tuple[Limit, ...]
    binding: str
    notes: tuple[str, ...]

    @property
    def hosts(self) -> int:
        return self.storage_hosts + self.vm_hosts

    @property
    def share(self) -> float:
        """What storage takes of a host: the larger of processor and memory."""
        return max(self.processor_share, self.memory_share)


def grown(inputs: Inputs, year: int) -> float:
    """Growth until the end of that year (0: the start), as a factor."""
    return (1 + inputs.site.growth_percent / 100) ** year


def cpu_us(points: tuple[CpuPoint, ...], block_kib: float, read: bool) -> float:
    """Linear between the measured block sizes; below the smallest its figure; above the largest by the last slope,
    or in proportion where there is one point."""
    at = [(p.block_kib, p.read_us if read else p.write_us) for p in points]
    if block_kib <= at[0][0]:
        return at[0][1]
    if len(at) == 1:
        return at[0][1] * block_kib / at[0][0]
    upper = next((i for i, (b, _) in enumerate(at) if b >= block_kib), len(at) - 1)
    (b0, c0), (b1, c1) = at[upper - 1], at[upper]
    slope = (c1 - c0) / (b1 - b0)
    # Noise in the last two points must not make large blocks free.
    return c0 + slope * (block_kib - b0) if slope > 0 or block_kib <= b1 else c1


def disk_seconds(disk: Disk, block_kib: float, read: bool) -> float:
    """Time of one operation on one disk: by operations or by bytes, whichever takes longer."""
    iops, rate = (disk.read_iops, disk.read_mb_s) if read else (disk.write_iops, disk.write_mb_s)
    return max(1 / iops, block_kib * KIB / (rate * 1e6))


def backend_operations(r: Redundancy, block_kib: float) -> tuple[float, float, float, float]:
    """For one client write: (reads, writes on disks, KiB of each of these, parts of an operation). With a code a write of a whole stripe
    (data x stripe unit) or more only writes. A smaller one reads and writes the old data and parities; on Ceph it reads the stripes that
    it touches from all data disks and writes them whole."""
    if not r.erasure:
        return 0.0, float(r.copies), block_kib, float(r.copies)
    stripe = r.data * r.stripe_kib
    if block_kib >= stripe:
        return 0.0, float(r.width), block_kib / r.data, float(r.width)
    if r.system == "ceph":
        return float(r.data), float(r.width), r.stripe_kib, float(r.data + r.width)
    return 1.0 + r.parity, 1.0 + r.parity, min(block_kib, r.stripe_kib), 2.0 * (1 + r.parity)


def read_parts(r: Redundancy, block_kib: float) -> tuple[float, float]:
    """(disks that one client read asks, KiB of each): one for copies; for a code each shard that holds a part of the range. Ceph reads the
    stripes that the range touches whole, from all data disks."""
    if not r.erasure:
        return 1.0, block_kib
    if r.system == "ceph":
        return float(r.data), max(r.stripe_kib, block_kib / r.data)
    asked = min(float(r.data), max(1.0, math.ceil(block_kib / r.stripe_kib)))
    return asked, block_kib / asked


def demand(inputs: Inputs, year: int) -> Demand:
    factor, r, s = grown(inputs, year), inputs.redundancy, inputs.storage
    reads = writes = read_mb = write_mb = seconds = written = written_day = threads = internal = 0.0
    for load in inputs.loads:
        n_read = factor * load.iops * load.read_percent / 100
        n_write = factor * load.iops - n_read
        mb = load.block_kib * KIB / 1e6
        more_reads, more_writes, part_kib, operations = backend_operations(r, load.block_kib)
        asked, read_kib = read_parts(r, load.block_kib)
        seconds += n_read * asked * disk_seconds(inputs.disk, read_kib, True)
        seconds += n_write * more_reads * disk_seconds(inputs.disk, part_kib, True)
        seconds += n_write * more_writes * s.write_amplification * disk_seconds(inputs.disk, part_kib, False)
        to_disk = n_write * more_writes * part_kib * KIB / 1e6 * s.write_amplification
        written += to_disk
        written_day += to_disk * load.busy_percent / 100 * SECONDS_A_DAY / 1e6
        threads += (n_read * cpu_us(s.cpu, load.block_kib, True) + n_write * cpu_us(s.cpu, load.block_kib, False) * operations / s.measured_width) / 1e6
        # The first copy or shard is where the client's bytes arrive; the others cross the network once more.
        internal += n_write * part_kib * KIB / 1e6 * max(0.0, more_reads + more_writes - 1)
        internal += n_read * max(mb, asked * read_kib * KIB / 1e6) * (r.data - 1) / r.data if r.erasure else 0.0
        reads, writes, read_mb, write_mb = reads + n_read, writes + n_write, read_mb + n_read * mb, write_mb + n_write * mb
    return Demand(reads, writes, read_mb, write_mb, seconds, written, written_day, threads, internal)


def left(hosts: int, racks: int) -> int:
    """Hosts that serve with one failure domain lost."""
    return hosts - (math.ceil(hosts / racks) if racks else 1)


def storage_memory(s: Storage, disk: Disk, disks: float) -> float:
    return disks * (s.memory_per_disk_gib + s.memory_per_tb_gib * disk.capacity_tb)


Use = Callable[[int, int], float]  # hosts, disks per host -> share of what may be used


def _share(need: float, have: float) -> float:
    return need / have if have > 0 else math.inf if need > 0 else 0.0


def uses(inputs: Inputs, host: Host, converged: bool, year: int) -> dict[str, Use]:
    """The limits; one function each, so that the table of limits and the search cannot disagree."""
    d, r, disk, limits, site, s = demand(inputs, year), inputs.redundancy, inputs.disk, inputs.limits, inputs.site, inputs.storage
    stored_tb = site.usable_tb * grown(inputs, year) * r.overhead
    vm_threads = site.vms * site.vcpus_per_vm / site.vcpus_per_thread if converged else 0.0
    vm_memory = site.vms * site.memory_per_vm_gib if converged else 0.0

    def domains(n: int, _m: int) -> float:
        return r.width / (r.racks or n)

    def capacity(n: int, m: int) -> float:
        return _share(stored_tb, n * m * disk.capacity_tb * r.fill_percent / 100)

    def healing(n: int, m: int) -> float:
        # Only where parts of an object can go to a domain that has none of it yet.
        if (r.racks or n) <= r.width:
            return 0.0
        return _share(stored_tb, left(n, r.racks) * m * disk.capacity_tb * r.heal_percent / 100)

    def disks(n: int, m: int) -> float:
        return _share(d.disk_seconds, left(n, r.racks) * m * limits.disk)

    def endurance(n: int, m: int) -> float:
        return _share(d.disk_written_tb_day, n * m * disk.capacity_tb * disk.writes_per_day)

    def processor(n: int, _m: int) -> float:
        serving = left(n, r.racks)
        return _share(d.threads / limits.processor + vm_threads, serving * (host.threads - host.reserved_threads))

    def memory(n: int, m: int) -> float:
        serving = left(n, r.racks)
        return _share(storage_memory(s, disk, serving * m) + vm_memory, serving * (host.memory_gib - host.reserved_memory_gib))

    def network(n: int, _m: int) -> float:
        serving = left(n, r.racks)
        if converged:
            # As much goes out of a host as comes in; what a host's VM asks of the host itself stays there.
            moved = (d.read_mb + d.write_mb) * (1 - 1 / serving if serving > 0 else 1.0) + d.internal_mb
        else:
            moved = max(d.read_mb, d.write_mb) + d.internal_mb
        return _share(moved, serving * host.network_gbit * 125 * limits.network)

    return {"failure domains": domains, "capacity": capacity, "healing": healing, "disk speed": disks, "disk endurance": endurance,
            "processor": processor, "memory": memory, "network": network}  # fmt: skip


def size(inputs: Inputs, converged: bool, year: int | None = None, have: tuple[int, int] = (0, 0)) -> Design:
    """The fewest hosts that hold every limit, with the fewest disks in each; no fewer than one has: (hosts, disks in each)."""
    year = inputs.site.years if year is None else year
    host = inputs.host if converged else inputs.dedicated
    limits, kind = uses(inputs, host, converged, year), "converged" if converged else "dedicated"
    width = inputs.redundancy.width
    # Fewer hosts than parts of an object are no design; nothing can heal before there is one more.
    first = {"healing": max(2, width + 1), "failure domains": 1}
    alone = {name: _fewest(lambda n, u=use, k=name: _disks_for(n, host, {k: u}) is not None, first.get(name, max(2, width))) for name, use in limits.items()}
    hosts = _fewest(lambda n: _disks_for(n, host, limits, have[1]) is not None, max(1, have[0]))
    if hosts is None:
        stuck = [name for name, n in alone.items() if n is None]
        what = ", ".join(stuck) if stuck else f"memory for more disks in a host with {host.memory_gib:g} GiB"
        raise PlanError(f"{inputs.file}: no {kind} design within {MAX_HOSTS} hosts a site: {what}")
    disks_per_host = _disks_for(hosts, host, limits, have[1]) or 1
    if (inputs.redundancy.racks or hosts) <= width:
        alone["healing"] = max(2, width)  # a design in which nothing can heal asks for no host because of it
    found = tuple(Limit(name, use(hosts, disks_per_host), alone[name] or hosts) for name, use in limits.items())
    binding = max(found, key=lambda x: (x.hosts_alone, x.use)).name
    return _design(inputs, host, kind, hosts, disks_per_host, found, binding, year)


def _fewest(holds: Callable[[int], bool], first: int) -> int | None:
    return next((n for n in range(first, MAX_HOSTS + 1) if holds(n)), None)


def _disks_for(hosts: int, host: Host, limits: dict[str, Use], least: int = 0) -> int | None:
    """More disks help every limit but memory: the fewest that hold the others, then memory decides."""
    low, high = max(1, least), host.disk_slots
    others = [u for name, u in limits.items() if name != "memory"]

    def holds(m: int, which: list[Use]) -> bool:
        return all(u(hosts, m) <= 1 for u in which)

    if not holds(high, others):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle, others) else (middle + 1, high)
    return low if holds(low, list(limits.values())) else None


def _design(inputs: Inputs, host: Host, kind: str, hosts: int, m: int, limits: tuple[Limit, ...], binding: str, year: int) -> Design:
    disk, r, s, site = inputs.disk, inputs.redundancy, inputs.storage, inputs.site
    d, raw = demand(inputs, year), hosts * m * disk.capacity_tb
    memory = storage_memory(s, disk, hosts * m)
    notes = []
    if (r.racks or hosts) <= r.width and r.width > 1:
        notes.append("As many failure domains as parts of an object: after a loss nothing can heal until it is repaired.")
    if r.erasure or s.measured_width != r.width:
        notes.append(f"Processor time was measured with {s.measured_width:g} copies and scaled to {'coded parts' if r.erasure else f'{r.width} copies'}: an assumption, not a measurement.")
    if s.vm_iops_max and site.vms and (d.reads + d.writes) / site.vms > s.vm_iops_max:
        notes.append(f"{(d.reads + d.writes) / site.vms:,.0f} operations per VM and second; one VM can drive {s.vm_iops_max:,.0f}.")
    if year > 0 and site.growth_percent:
        notes.append(f"Sized for year {year}: {site.usable_tb * grown(inputs, year):,.1f} TB usable.")
    return Design(
        kind, hosts, 0 if kind == "converged" else vm_hosts(inputs), vm_hosts(inputs), hosts * m, m, raw, raw * r.fill_percent / 100 / r.overhead, d.threads,
        min(1.0, d.threads / inputs.limits.processor / (hosts * host.threads)), memory, memory / (hosts * host.memory_gib), limits, binding, tuple(notes),
    )  # fmt: skip


def vm_hosts(inputs: Inputs) -> int:
    """Hosts for the VMs alone, one spare; 0 without VMs. They are not a part of the storage and not of its cost."""
    site, host = inputs.site, inputs.host
    if not site.vms:
        return 0
    threads = site.vms * site.vcpus_per_vm / site.vcpus_per_thread / (host.threads - host.reserved_threads)
    memory = site.vms * site.memory_per_vm_gib / (host.memory_gib - host.reserved_memory_gib)
    return max(1, math.ceil(max(threads, memory))) + 1
