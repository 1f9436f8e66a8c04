"""The five-year cost of storage for many sites, and its sensitivity. Units: docs/cost-model.md.

    annual cost = (hardware purchase / lifetime + hardware support + software support + power and cooling) x sites
                  + development and certification + operations staff

after the model in Ra's study of a hyper-converged cloud (five years, up to 500 sites, a share of 10 to 70 % for storage), whose terms are
fewer: primary and secondary hardware, software, power, development and certification, staff. What they are made of here is ours.
The overhead is the share of each converged host that storage takes: so much of the host's price, support and power
is storage's; its disks are storage's altogether. Hosts beyond those that the VMs alone would need are there for the storage
and are its cost in full, however little it uses of them. A dedicated host's overhead is 100 %. VM hosts are no part of
the storage's cost; `bought` counts them, so that designs can be compared by what is paid for in all.
Does not size anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from lab.plan_input import CpuPoint, Host, Inputs
from lab.plan_size import Design, size
from lab.plan_toml import PlanError

HOURS_PER_YEAR = 8766.0
COST_YEARS = 5
SITES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
OVERHEADS = (0.1, 0.3, 0.5, 0.7)
SWING = 0.25  # of the sensitivity: each input lower and higher by this share


@dataclass(frozen=True)
class Cost:
    """Per year, in the prices' currency; the first five are of one site."""

    purchase: float  # once per lifetime, not per year; with the network's share
    hardware: float
    hardware_support: float
    software_support: float
    power: float
    sites: int
    development: float
    staff: float
    switches: float = 0.0  # of `purchase`, what the network is

    @property
    def per_site(self) -> float:
        return self.hardware + self.hardware_support + self.software_support + self.power

    @property
    def annual(self) -> float:
        return self.per_site * self.sites + self.development + self.staff

    @property
    def five_years(self) -> float:
        return COST_YEARS * self.annual


def cost(inputs: Inputs, design: Design, sites: int | None = None, overhead: float | None = None) -> Cost:
    """`sites` and `overhead` other than the plan's, for the curves."""
    p, host = inputs.prices, host_of(inputs, design)
    sites = inputs.site.sites if sites is None else sites
    hosts = paid_hosts(design) if overhead is None else design.storage_hosts * overhead
    net = network(inputs, design)
    share = hosts / design.hosts if design.hosts else 0.0  # of the network: as many hosts of it as are the storage's cost
    purchase = hosts * host.price + design.disks * inputs.disk.price + share * net.price
    watts = hosts * host.power_w + design.disks * inputs.disk.power_w + share * net.watts
    return Cost(
        purchase, purchase / p.lifetime_years, purchase * p.hardware_support_percent / 100,
        design.storage_hosts * p.software_per_host + design.raw_tb * p.software_per_raw_tb, watts / 1000 * HOURS_PER_YEAR * p.pue * p.power_per_kwh,
        sites, p.development_per_year, (p.people + p.people_per_site * sites) * p.salary, share * net.price,
    )  # fmt: skip


@dataclass(frozen=True)
class Switches:
    """Of one site, all hosts of the design."""

    count: int
    price: float
    watts: float


def network(inputs: Inputs, design: Design) -> Switches:
    n = inputs.prices.network
    if n is None:
        return Switches(0, 0.0, 0.0)
    ports = design.hosts * n.ports_per_host
    count = max(n.switches_min, math.ceil(ports / n.switch_ports))
    return Switches(count, count * n.switch_price + ports * n.port_price, count * n.switch_power_w)


def paid_hosts(design: Design) -> float:
    """Hosts that are the storage's cost: of a converged site its share, and no less than those the VMs do not need."""
    if design.kind != "converged":
        return float(design.storage_hosts)
    return max(design.storage_hosts * design.share, float(design.storage_hosts - design.vms_alone))


@dataclass(frozen=True)
class Bought:
    """All that one site buys at the start, VM hosts included."""

    hosts: int
    disks: int
    price: float
    switches: int = 0


def bought(inputs: Inputs, design: Design) -> Bought:
    price = design.storage_hosts * host_of(inputs, design).price + design.vm_hosts * inputs.host.price + design.disks * inputs.disk.price
    net = network(inputs, design)
    return Bought(design.hosts, design.disks, price + net.price, net.count)


@dataclass(frozen=True)
class Year:
    """What one site buys at the start of a year so that it holds until its end, where nothing is thrown away; and what the storage then
    costs in that year, all sites."""

    year: int
    hosts: int
    disks: int
    price: float
    annual: float


def by_year(inputs: Inputs, converged: bool) -> list[Year]:
    """Growth bought when it comes: hosts and disks are added, VM hosts are there from the start. Years after the plan's last keep its size."""
    have, owned, found = (0, 0), Bought(0, 0, 0.0, 0), []
    for year in range(1, max(COST_YEARS, inputs.site.years) + 1):
        design = size(inputs, converged, min(year, inputs.site.years), have)
        now = bought(inputs, design)
        found.append(Year(year, now.hosts - owned.hosts, now.disks - owned.disks, now.price - owned.price, cost(inputs, design).annual))
        have, owned = (design.storage_hosts, design.disks_per_host), now
    return found


@dataclass(frozen=True)
class Range:
    """With every measured figure at the low ends of its interval, and at the high ends: (hosts, disks, five-year cost) of each; None
    where no design holds. Wider than one interval: not all figures lie at their ends at once."""

    low: tuple[int, int, float] | None
    high: tuple[int, int, float] | None


def measured_range(inputs: Inputs, converged: bool) -> Range | None:
    """None where the figures were entered, or measured once: they have no intervals."""
    s = inputs.storage
    if not s.cpu_low or (s.cpu_low == s.cpu == s.cpu_high and s.amplification_low == s.amplification_high):
        return None

    def at(cpu: tuple[CpuPoint, ...], amplification: float) -> tuple[int, int, float] | None:
        changed = replace(inputs, storage=replace(s, cpu=cpu, write_amplification=amplification))
        try:
            design = size(changed, converged)
        except PlanError:
            return None
        return design.hosts, design.disks, cost(changed, design).five_years

    return Range(at(s.cpu_low, s.amplification_low), at(s.cpu_high, s.amplification_high))


def host_of(inputs: Inputs, design: Design) -> Host:
    return inputs.host if design.kind == "converged" else inputs.dedicated


def parts(inputs: Inputs, design: Design, sites: int) -> list[tuple[str, float]]:
    """What makes up the yearly cost of a usable TB: the purchase by its kinds over its lifetime, and what comes each year."""
    c, p, host = cost(inputs, design, sites), inputs.prices, host_of(inputs, design)
    per_tb = sites * design.usable_tb
    each = [
        ("hosts", paid_hosts(design) * host.price / p.lifetime_years), ("disks", design.disks * inputs.disk.price / p.lifetime_years), ("network", c.switches / p.lifetime_years),
        ("hardware support", c.hardware_support), ("software support", c.software_support), ("power and cooling", c.power),
    ]  # fmt: skip
    return [(name, v * sites / per_tb) for name, v in each] + [("development", c.development / per_tb), ("operations staff", c.staff / per_tb)]


def over_sites(inputs: Inputs, design: Design, overhead: float | None = None) -> list[tuple[int, float]]:
    """(sites, cost per usable TB and year)"""
    usable = design.usable_tb
    return [(n, cost(inputs, design, n, overhead).annual / (n * usable)) for n in SITES]


Change = Callable[[Inputs, float], Inputs]


def _cpu(inputs: Inputs, f: float) -> Inputs:
    points = tuple(CpuPoint(p.block_kib, p.read_us * f, p.write_us * f) for p in inputs.storage.cpu)
    return replace(inputs, storage=replace(inputs.storage, cpu=points))


def _host_price(inputs: Inputs, f: float) -> Inputs:
    return replace(inputs, host=replace(inputs.host, price=inputs.host.price * f), dedicated=replace(inputs.dedicated, price=inputs.dedicated.price * f))


def _network_price(inputs: Inputs, f: float) -> Inputs:
    p, n = inputs.prices, inputs.prices.network
    return inputs if n is None else replace(inputs, prices=replace(p, network=replace(n, switch_price=n.switch_price * f, port_price=n.port_price * f)))


def _people(inputs: Inputs, f: float) -> Inputs:
    p = inputs.prices
    return replace(inputs, prices=replace(p, people=p.people * f, people_per_site=p.people_per_site * f))


# What is varied: one row per input.
CHANGES: dict[str, Change] = {
    "usable capacity": lambda i, f: replace(i, site=replace(i.site, usable_tb=i.site.usable_tb * f)),
    "growth": lambda i, f: replace(i, site=replace(i.site, growth_percent=i.site.growth_percent * f)),
    "operations": lambda i, f: replace(i, loads=tuple(replace(x, iops=x.iops * f) for x in i.loads)),
    "processor time per operation": _cpu,
    "write amplification": lambda i, f: replace(i, storage=replace(i.storage, write_amplification=max(1.0, i.storage.write_amplification * f))),
    "price of a host": _host_price,
    "price of a disk": lambda i, f: replace(i, disk=replace(i.disk, price=i.disk.price * f)),
    "software support": lambda i, f: replace(i, prices=replace(i.prices, software_per_host=i.prices.software_per_host * f, software_per_raw_tb=i.prices.software_per_raw_tb * f)),
    "price of the network": _network_price,
    "price of electricity": lambda i, f: replace(i, prices=replace(i.prices, power_per_kwh=i.prices.power_per_kwh * f)),
    "people": _people,
    "development": lambda i, f: replace(i, prices=replace(i.prices, development_per_year=i.prices.development_per_year * f)),
}  # fmt: skip


def sensitivity(inputs: Inputs, converged: bool) -> list[tuple[str, float | None, float | None]]:
    """(input, five-year cost with it lower, higher) with everything sized anew; the strongest first. None where
    no design holds with it; hosts and disks are whole, so small changes may move nothing."""

    def at(change: Change, factor: float) -> float | None:
        varied = change(inputs, factor)
        try:
            return cost(varied, size(varied, converged)).five_years
        except PlanError:
            return None

    rows = [(name, at(change, 1 - SWING), at(change, 1 + SWING)) for name, change in CHANGES.items()]
    return sorted(rows, key=lambda r: -abs((r[2] or 0) - (r[1] or 0)))
