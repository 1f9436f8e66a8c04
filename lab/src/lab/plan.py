"""`lab plan FILE`: from a site's wishes to hosts, disks, shares, binding limits and five-year cost, in both designs.

`plan_file` makes a Plan; `as_dict`, `print_plan` and `write` (plan.html, plan.md, figures) show it. Example files
are beside this one: plan-example.toml and prices-example.toml. Formulas: docs/cost-model.md.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lab import cost as costs
from lab import plan_input, plan_size, plots, report
from lab.plan_toml import PlanError
from lab.report_units import significant

KINDS = ("converged", "dedicated")


@dataclass(frozen=True)
class Option:
    """One design with its cost; `by_year` holds (year, storage hosts, disks)."""

    design: plan_size.Design
    cost: costs.Cost
    bought: costs.Bought
    by_year: tuple[tuple[int, int, int], ...]
    sensitivity: tuple[tuple[str, float | None, float | None], ...]
    growth: tuple[costs.Year, ...]  # bought year by year instead of all at the start
    measured: costs.Range | None


@dataclass(frozen=True)
class Plan:
    inputs: plan_input.Inputs
    demand: plan_size.Demand
    options: tuple[Option, ...]
    impossible: tuple[str, ...]  # designs that no number of hosts makes hold, with the reason


PARTS_AT = (1, 5, 20, 100, 500)  # sites


def plan_file(path: Path | str) -> Plan:
    inputs = plan_input.read(Path(path))
    options, impossible = [], []
    for kind in KINDS:
        try:
            options.append(_option(inputs, kind == "converged"))
        except PlanError as e:
            impossible.append(str(e))
    if not options:
        raise PlanError(impossible[0])
    return Plan(inputs, plan_size.demand(inputs, inputs.site.years), tuple(options), tuple(impossible))


def _option(inputs: plan_input.Inputs, converged: bool) -> Option:
    design = plan_size.size(inputs, converged)
    years = []
    for year in range(inputs.site.years + 1):
        then = plan_size.size(inputs, converged, year)
        years.append((year, then.storage_hosts, then.disks))
    return Option(design, costs.cost(inputs, design), costs.bought(inputs, design), tuple(years), tuple(costs.sensitivity(inputs, converged)),
                  tuple(costs.by_year(inputs, converged)), costs.measured_range(inputs, converged))  # fmt: skip


def as_dict(plan: Plan) -> dict[str, Any]:
    return {
        "inputs": asdict(plan.inputs),
        "demand": asdict(plan.demand),
        "impossible": list(plan.impossible),
        "designs": [
            {
                **asdict(o.design), "hosts": o.design.hosts, "share": o.design.share, "by_year": [dict(zip(("year", "storage_hosts", "disks"), y)) for y in o.by_year],
                "bought": asdict(o.bought), "growth": [asdict(y) for y in o.growth], "five_years_grown": grown_cost(o),
                "measured_range": None if o.measured is None else {k: None if v is None else dict(zip(("hosts", "disks", "five_years"), v)) for k, v in asdict(o.measured).items()},
                "cost": {**asdict(o.cost), "per_site": o.cost.per_site, "annual": o.cost.annual, "five_years": o.cost.five_years},
                "sensitivity": [dict(zip(("input", "lower", "higher"), r)) for r in o.sensitivity],
                "per_usable_tb_year": [dict(zip(("sites", "cost"), r)) for r in costs.over_sites(plan.inputs, o.design)],
            }
            for o in plan.options
        ],
    }  # fmt: skip


def rows(plan: Plan) -> list[tuple[str, list[str]]]:
    """The table of results, the same for screen, page and Markdown."""
    options, money = plan.options, lambda v: f"{v:,.0f} {plan.inputs.prices.currency}"  # noqa: E731

    def row(name: str, value: Any) -> tuple[str, list[str]]:
        return name, [value(o) for o in options]

    return [
        row("storage hosts, each site", lambda o: f"{o.design.storage_hosts}"),
        row("hosts for VMs alone (not in the storage's cost)", lambda o: f"{o.design.vm_hosts}"),
        row("disks in each storage host", lambda o: f"{o.design.disks_per_host}"),
        row("raw capacity", lambda o: f"{o.design.raw_tb:,.1f} TB"),
        row("usable at the fill limit", lambda o: f"{o.design.usable_tb:,.1f} TB"),
        row("processor share of storage", lambda o: f"{100 * o.design.processor_share:.0f} %"),
        row("memory share of storage", lambda o: f"{100 * o.design.memory_share:.0f} %"),
        row("binding limit", lambda o: o.design.binding),
        row("bought in all, each site", lambda o: f"{o.bought.hosts} hosts, {o.bought.disks} disks" + (f", {o.bought.switches} switches" if o.bought.switches else "")),
        row("price of all that, each site", lambda o: money(o.bought.price)),
        row("hosts that are the storage's cost", lambda o: f"{costs.paid_hosts(o.design):.1f}"),
        row("the storage's purchase, each site", lambda o: money(o.cost.purchase)),
        *([row("of that the network", lambda o: money(o.cost.switches))] if plan.inputs.prices.network else []),
        row("hardware a year, each site", lambda o: money(o.cost.hardware)),
        row("hardware support a year, each site", lambda o: money(o.cost.hardware_support)),
        row("software support a year, each site", lambda o: money(o.cost.software_support)),
        row("power and cooling a year, each site", lambda o: money(o.cost.power)),
        row("development and certification a year", lambda o: money(o.cost.development)),
        row("operations staff a year", lambda o: money(o.cost.staff)),
        row(f"all {plan.inputs.site.sites} sites, a year", lambda o: money(o.cost.annual)),
        row(f"all {plan.inputs.site.sites} sites, five years", lambda o: money(o.cost.five_years)),
        *([row("the same with measured figures at the ends of their intervals", lambda o: _range(o, money))] if any(o.measured for o in options) else []),
        *([row("the same with growth bought year by year", lambda o: money(grown_cost(o)))] if plan.inputs.site.growth_percent else []),
    ]


def grown_cost(option: Option) -> float:
    """Five years, all sites, each year with what is there by then."""
    return sum(y.annual for y in option.growth[: costs.COST_YEARS])


def _range(option: Option, money: Any) -> str:
    if option.measured is None:
        return "no interval"
    ends = [f"{money(e[2])} ({e[0]} hosts, {e[1]} disks)" if e else "no design holds" for e in (option.measured.low, option.measured.high)]
    return f"{ends[0]} to {ends[1]}"


def growth_rows(plan: Plan) -> list[tuple[int, list[tuple[str, str, str]]]]:
    """(year, per design (hosts, disks, price) that one site buys at its start)"""
    years = max(len(o.growth) for o in plan.options)
    shown = [n for n in range(years) if n < plan.inputs.site.years]
    return [(n + 1, [(f"{o.growth[n].hosts}", f"{o.growth[n].disks}", f"{o.growth[n].price:,.0f} {plan.inputs.prices.currency}") for o in plan.options]) for n in shown]


EXAMPLES = ("plan-example.toml", "prices-example.toml")


def write_example(directory: Path) -> list[Path]:
    """Both files of the example; nothing that is there is overwritten."""
    if there := [n for n in EXAMPLES if (directory / n).exists()]:
        raise PlanError(f"{directory / there[0]} is there already")
    directory.mkdir(parents=True, exist_ok=True)
    for name in EXAMPLES:
        (directory / name).write_text(resources.files("lab").joinpath(name).read_text(encoding="utf-8"), encoding="utf-8")
    return [directory / n for n in EXAMPLES]


def limit_rows(plan: Plan) -> list[tuple[str, list[tuple[str, str]]]]:
    """(limit, per design (use, hosts that it alone would need))"""
    names = [x.name for x in plan.options[0].design.limits]
    return [(n, [(f"{100 * x.use:.0f} %", f"{x.hosts_alone}") for o in plan.options for x in o.design.limits if x.name == n]) for n in names]


def print_plan(plan: Plan, console: Console) -> None:
    site = plan.inputs.site
    main = Table(title=f"{site.name}: {site.usable_tb:g} TB usable, {plan.inputs.storage.name}, year {site.years}", title_justify="left")
    main.add_column("")
    for o in plan.options:
        main.add_column(o.design.kind, justify="right")
    for name, values in rows(plan):
        main.add_row(name, *values)
    console.print(main)
    limits = Table(title="Limits: use of what may be used, hosts that each alone would need", title_justify="left")
    limits.add_column("limit")
    for o in plan.options:
        limits.add_column(o.design.kind, justify="right")
        limits.add_column("hosts", justify="right")
    for name, values in limit_rows(plan):
        limits.add_row(name, *(v for pair in values for v in pair))
    console.print(limits)
    if plan.inputs.site.growth_percent:
        bought = Table(title="Growth bought year by year, each site: hosts, disks, price", title_justify="left")
        bought.add_column("at the start of year")
        for o in plan.options:
            bought.add_column(o.design.kind, justify="right")
        for year, values in growth_rows(plan):
            bought.add_row(str(year), *(", ".join(v) for v in values))
        console.print(bought)
    for note in remarks(plan):
        console.print(note, highlight=False, markup=False)


def remarks(plan: Plan) -> list[str]:
    notes = [f"{o.design.kind}: {n}" for o in plan.options for n in o.design.notes]
    notes += [f"Not possible: {text}" for text in plan.impossible]
    if plan.inputs.prices.network is None:
        notes.append("No prices of the network ([network] in the prices): switches are in no figure.")
    if any(o.measured for o in plan.options):
        notes.append("The range has all measured figures at the same ends of their intervals at once, so it is wider than they are.")
    return [*notes, f"Storage figures: {plan.inputs.storage.source}. Prices: {plan.inputs.prices.source}."]


def figures(plan: Plan) -> list[plots.Figure]:
    money, drawn = plan.inputs.prices.currency, []
    for o in plan.options:
        kind, centre = o.design.kind, o.cost.five_years
        moved = [(n, low if low is not None else centre, high if high is not None else centre) for n, low, high in o.sensitivity]
        drawn.append(plots.tornado(
            f"plan-sensitivity-{kind}", f"Five-year cost of the {kind} design with each input {100 * costs.SWING:.0f} % lower and higher, sized anew each time "
            "(hosts and disks are whole: small changes may move nothing).", moved, centre, f"five-year cost, all sites [{money}]", _short))  # fmt: skip
        if kind == "converged":
            curves = [plots.Line(f"as planned, {100 * costs.paid_hosts(o.design) / o.design.storage_hosts:.0f} %", 0, _over_sites(plan, o))]
            curves += [plots.Line(f"overhead {100 * overhead:.0f} %", i, _over_sites(plan, o, overhead)) for i, overhead in enumerate(costs.OVERHEADS, 1)]
            drawn.append(plots.curves(
                f"plan-sites-{kind}", f"Yearly cost of a usable TB over the number of sites, {kind} design, by the share of the hosts that storage takes.",
                curves, "sites", f"{money} per usable TB and year", log_x=True, mark_x=(plan.inputs.site.sites, "this plan"), format_y=_short))  # fmt: skip
    if plan.options:
        both = [plots.Line(o.design.kind, i, _over_sites(plan, o)) for i, o in enumerate(plan.options)]
        drawn.append(plots.curves("plan-sites", f"Yearly cost of a usable TB over the number of sites, {' and '.join(o.design.kind for o in plan.options)} on one axis, switches included.", both, "sites",
                                  f"{money} per usable TB and year", log_x=True, mark_x=(plan.inputs.site.sites, "this plan"), format_y=_short))  # fmt: skip
        panels = [(o.design.kind, [plots.Column(str(n), tuple((name, v) for name, v in costs.parts(plan.inputs, o.design, n) if v)) for n in PARTS_AT]) for o in plan.options]
        drawn.append(plots.columns("plan-parts", "What the yearly cost of a usable TB is made of, at numbers of sites; purchases over their lifetime.", panels, money, "per usable TB and year", "sites"))
    return drawn


def _over_sites(plan: Plan, o: Option, overhead: float | None = None) -> list[tuple[float, float, None, None]]:
    return [(float(n), c, None, None) for n, c in costs.over_sites(plan.inputs, o.design, overhead)]


def _short(value: float) -> str:
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{significant(value / size)}{name}"
    return significant(value)


def write(plan: Plan, out_dir: Path | str) -> list[Path]:
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    drawn = figures(plan)
    context = {
        "plan": plan, "site": plan.inputs.site, "kinds": [o.design.kind for o in plan.options], "rows": rows(plan), "limits": limit_rows(plan),
        "remarks": remarks(plan), "years": [(y[0][0], [(str(h), str(d)) for _, h, d in y]) for y in zip(*(o.by_year for o in plan.options))],
        "growth": growth_rows(plan) if plan.inputs.site.growth_percent else [],
        "figures": drawn, "wishes": _wishes(plan.inputs),
    }  # fmt: skip
    paths = []
    for name in ("plan.html", "plan.md"):
        (out / name).write_text(report.environment().get_template(f"{name}.j2").render(context), encoding="utf-8")
        paths.append(out / name)
    return [*paths, *report.write_figures(out / "plots", drawn, "plan-")]


def _wishes(i: plan_input.Inputs) -> list[tuple[str, str]]:
    r = i.redundancy
    kept = f"{r.data} + {r.parity} erasure code{' of Ceph' if r.system == 'ceph' else ''}, stripe unit {r.stripe_kib:g} KiB" if r.erasure else f"{r.copies} copies"
    points = "; ".join(f"{p.block_kib:g} KiB: {p.read_us:.3g} µs a read, {p.write_us:.3g} µs a write" for p in i.storage.cpu)
    return [
        ("site", f"{i.site.usable_tb:g} TB usable, growing {i.site.growth_percent:g} % a year over {i.site.years} years; {i.site.vms} VMs; {i.site.sites} sites"),
        ("redundancy", f"{kept}; failure domain {'rack, ' + str(r.racks) + ' racks' if r.racks else 'host'}; filled to {r.fill_percent:g} %"),
        *((f"load {x.name}", f"{x.iops:,.0f} operations/s of {x.block_kib:g} KiB, {x.read_percent:g} % reads") for x in i.loads),
        ("host", f"{i.host.threads} threads, {i.host.memory_gib:g} GiB, {i.host.disk_slots} disks, {i.host.network_gbit:g} Gbit/s"),
        ("disk", f"{i.disk.capacity_tb:g} TB, {i.disk.read_iops:,.0f} reads/s, {i.disk.write_iops:,.0f} writes/s"),
        (f"storage {i.storage.name}", f"{i.storage.source}; {points}; write amplification {i.storage.write_amplification:.3g}"),
        ("prices", f"{i.prices.source}, in {i.prices.currency}"),
    ]  # fmt: skip
