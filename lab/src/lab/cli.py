"""The command line: list, check, run, import, compare, report, plan, clean.

Each command is thin: it reads its options, calls one function of the module that does the work, and prints what
that returns, as text or (`-f json`) as one JSON document. Errors of the user's making end with exit status 2 and
one sentence; measurements that failed end with 1, after everything that could be measured has been.
"""

from __future__ import annotations

import enum
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.console import Console

from lab import __version__, estimate, inventory, launch, ledger
from lab.config import ConfigError, RunSettings
from lab.config import load as load_config
from lab.launch import UserError
from lab.process import abandoned, run_plainly, sweep
from lab.records import RecordError, load_run

def _version(wanted: bool) -> None:
    if wanted:
        print(f"lab {__version__}")
        raise typer.Exit


app = typer.Typer(
    help="Measures storage back ends for a VM cloud side by side, and plans one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console(markup=False, emoji=False)
complaints = Console(stderr=True, markup=False, emoji=False)


class Format(str, enum.Enum):
    text = "text"
    json = "json"


ConfigOption = Annotated[Optional[Path], typer.Option("-c", "--config", help="settings, TOML; see README")]
FormatOption = Annotated[Format, typer.Option("-f", "--format", help="text, or json for one JSON document")]


def emit_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")



@app.callback()
def start(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="the lab's version, and nothing else")] = False) -> None:
    """Measures storage back ends for a VM cloud side by side, and plans one."""


@app.command(name="list")
def list_(format: FormatOption = Format.text) -> None:
    """Studies, back ends, and the runs under ./runs."""
    found = inventory.everything(Path(RunSettings().out))
    if format is Format.json:
        emit_json(found)
    else:
        for table in inventory.tables(found):
            console.print(table)


@app.command()
def check(
    config: ConfigOption = None,
    site: Annotated[Optional[Path], typer.Option(help="a site's file: what each of its hosts lacks; exit status 1 where one does")] = None,
    format: FormatOption = Format.text,
) -> None:
    """What can run here, or on a site's hosts, and why the rest cannot. Starts nothing."""
    if site is not None:
        from lab import site_file, site_probe

        hosts = site_probe.check(site_file.read(site), load_config("quick", config))
        emit_json(site_probe.as_dict(hosts)) if format is Format.json else console.print(site_probe.table(hosts))
        raise typer.Exit(1 if any(site_probe.told(h) for h in hosts) else 0)
    found = inventory.check(load_config("quick", config))
    if format is Format.json:
        emit_json(found)
    else:
        console.print(inventory.check_table(found))


@app.command()
def run(
    studies: Annotated[Optional[list[str]], typer.Argument(help="studies by name, or all")] = None,
    backends: Annotated[Optional[str], typer.Option(help="instead of those of the configuration: skep:1,ceph:2,file")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="the small grid (the default)")] = False,
    night: Annotated[bool, typer.Option("--night", help="grids that fit a night")] = False,
    full: Annotated[bool, typer.Option("--full", help="all factors of the studies: weeks with all back ends; see --dry-run")] = False,
    study: Annotated[str, typer.Option("--study", help="the work of a published study, as far as we know it: oliveira, johari, ding, ra, borges; its values are drawn beside")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="how much would be measured and about how long; starts nothing")] = False,
    config: ConfigOption = None,
    out: Annotated[Optional[Path], typer.Option(help="the run's directory; a new one under ./runs by default")] = None,
    resume: Annotated[Optional[Path], typer.Option(help="a run's directory: goes on where it was interrupted")] = None,
    site: Annotated[Optional[Path], typer.Option(help="hosts over ssh, TOML: clients there measure storage that is there")] = None,
    durable: Annotated[bool, typer.Option("--durable", help="every write flushed, also where the back end answers before: O_DSYNC, or a flush after each")] = False,
    rounds: Annotated[int, typer.Option(help="instead of the configured number", min=0, max=10_000)] = 0,
    stop_after: Annotated[float, typer.Option(help="seconds, then stop; --resume goes on", min=0)] = 0.0,
    lock: Annotated[Optional[list[Path]], typer.Option(help="file to flock while measuring, on a machine whose users take turns")] = None,
    report: Annotated[bool, typer.Option(help="write the report at the end")] = True,
    format: FormatOption = Format.text,
) -> None:
    """Measures, interleaving the back ends; keeps every result in the run's directory."""
    chosen = [name for name, asked in (("quick", quick), ("night", night), ("full", full)) if asked]
    if len(chosen) > 1:
        raise UserError(f"--{' and --'.join(chosen)} exclude each other")
    request = launch.Request(studies or [], [b for b in (backends or "").split(",") if b], chosen[0] if chosen else "quick", config, out, resume, rounds, stop_after, lock or [], durable, site, study)
    if dry_run:
        found = launch.dry_run(request)
        emit_json(found) if format is Format.json else console.print(estimate.table(found))
        return
    raise typer.Exit(launch.run(request, complaints, report, emit_json if format is Format.json else None))


@app.command()
def clean(
    scratch: Annotated[Path, typer.Option(help="where runs keep what is temporary")] = Path(RunSettings().scratch),
    site: Annotated[Optional[Path], typer.Option(help="a site's file: also what any lab that is gone left on its hosts")] = None,
) -> None:
    """Ends and removes what labs that are gone left behind: processes, mounts, loop devices, files; pools and images on clusters."""
    for directory, mark in abandoned(scratch):
        sweep(directory, mark)
        console.print(f"removed {directory}", highlight=False, markup=False)
    stayed = 0
    for host in ledger.abandoned_hosts(scratch):
        left = ledger.remove_host(host, ledger.over_ssh(host.stay.ssh, run_plainly))
        stayed += bool(left)
        console.print(left or f"removed {host.stay.told}", highlight=False, markup=False, soft_wrap=True)
    for entry in ledger.abandoned(scratch):
        run = ledger.over_ssh(entry.stay.ssh, run_plainly) if entry.stay.ssh else run_plainly
        left = ledger.silent(entry, run) or ledger.remove(entry, run)
        stayed += bool(left)
        console.print(left or f"removed {entry.stay.told}", highlight=False, markup=False, soft_wrap=True)
    if site is not None:
        from lab import site_clean, site_file

        left = site_clean.clean(site_file.read(site), lambda h, argv: ledger.over_ssh(h.at.ssh(), lambda words: run_plainly(words, site_clean.ANSWER_LIMIT_S))(argv))
        stayed += len(left.stayed)
        for line in [*(f"removed {text}" for text in left.removed), *left.stayed]:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(1 if stayed else 0)


@app.command(name="import")
def import_(
    files: Annotated[list[str], typer.Argument(help="NAME:COPIES=FILE[,FILE...]: fio's JSON, a file a round, such as ceph:3=a.json,b.json")],
    out: Annotated[Path, typer.Option(help="the run's directory, made anew")],
    acknowledged: Annotated[Optional[list[str]], typer.Option(help="when a write is answered: flushed, sent or cached; or NAME:COPIES=flushed, once a back end")] = None,
    report: Annotated[bool, typer.Option(help="write the report")] = True,
) -> None:
    """Results of fio from elsewhere as a run of study `matrix`, for report, compare and plan."""
    from lab import imports
    from lab import report as reporting

    done = imports.write(imports.backends(files, acknowledged or []), out)
    for path in reporting.write(load_run(done), done) if report else [done]:
        console.print(str(path), soft_wrap=True, highlight=False)


@app.command()
def merge(
    runs: Annotated[list[str], typer.Argument(help="KIND=DIR of each run, such as nvme=runs/matrix-a sas=runs/matrix-b")],
    out: Annotated[Path, typer.Option(help="the new run's directory")],
    report: Annotated[bool, typer.Option(help="write the report")] = True,
) -> None:
    """Runs of the same work on several kinds of disk as one, with a figure over the kinds."""
    from lab import merge as merging
    from lab import report as reporting

    done = merging.write(merging.parse(runs), out)
    for path in reporting.write(load_run(done), done) if report else [done]:
        console.print(str(path), soft_wrap=True, highlight=False)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="a run's directory")],
    out: Annotated[Optional[Path], typer.Option(help="where the report goes; the run's directory by default")] = None,
    reference: Annotated[str, typer.Option(help="the back end that the others are compared with, such as ceph:3 or file:1/qcow2")] = "",
    all_pairs: Annotated[bool, typer.Option("--all-pairs", help="every back end with every other one")] = False,
    judge_unlike: Annotated[bool, typer.Option("--judge-unlike", help="verdicts also where copies, answered writes or memory budgets differ")] = False,
    format: FormatOption = Format.text,
) -> None:
    """One HTML page and Markdown out of a run, also out of one that was cut short."""
    from lab import report as reporting
    from lab.report_data import Wishes

    if reference and all_pairs:
        raise UserError("--reference and --all-pairs exclude each other")
    loaded, wishes = load_run(run), Wishes(reference, all_pairs, judge_unlike)
    if format is Format.json:
        emit_json(reporting.summary(loaded, wishes))
        return
    for path in reporting.write(loaded, out or loaded.path or run, wishes):
        console.print(str(path), soft_wrap=True, highlight=False)


@app.command()
def compare(run_a: Path, run_b: Path, format: FormatOption = Format.text) -> None:
    """Two runs: which medians differ, by intervals of their ratios."""
    from lab import compare as comparing

    found = comparing.compare(load_run(run_a), load_run(run_b))
    if format is Format.json:
        emit_json(found)
        return
    console.print(comparing.table(found))


@app.command()
def plan(
    file: Annotated[Optional[Path], typer.Argument(help="the site's wishes, TOML")] = None,
    out: Annotated[Optional[Path], typer.Option(help="also write the plan as HTML and Markdown here")] = None,
    example: Annotated[Optional[Path], typer.Option(help="write an example of both files into this directory, and nothing else")] = None,
    format: FormatOption = Format.text,
) -> None:
    """Hosts, disks, shares, binding limits and five-year cost of a site."""
    from lab import plan as planning

    if example is not None:
        for path in planning.write_example(example):
            console.print(str(path), soft_wrap=True, highlight=False)
        return
    if file is None:
        raise UserError("which plan? --example DIR writes one to begin with")

    made = planning.plan_file(file)
    if format is Format.json:
        emit_json(planning.as_dict(made))
    else:
        planning.print_plan(made, console)
    if out:
        for path in planning.write(made, out):
            complaints.print(str(path), soft_wrap=True, highlight=False)


def main() -> None:
    try:
        app(standalone_mode=True)
    except (UserError, ConfigError, RecordError) as e:
        complaints.print(f"lab: {e}", highlight=False, markup=False, soft_wrap=True)
        raise SystemExit(2) from None
