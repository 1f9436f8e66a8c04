"""The command line: list, check, run, compare, report, plan, clean.

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

from lab.records import RecordError, load_run

app = typer.Typer(
    help="Measures storage back ends for a VM cloud side by side, and plans one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
complaints = Console(stderr=True)


class Format(str, enum.Enum):
    text = "text"
    json = "json"


FormatOption = Annotated[Format, typer.Option("-f", "--format", help="text, or json for one JSON document")]


def emit_json(value: Any) -> None:
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="a run's directory")],
    out: Annotated[Optional[Path], typer.Option(help="where the report goes; the run's directory by default")] = None,
    format: FormatOption = Format.text,
) -> None:
    """One HTML page and Markdown out of a run, also out of one that was cut short."""
    from lab import report as reporting

    loaded = load_run(run)
    if format is Format.json:
        emit_json(reporting.summary(loaded))
        return
    for path in reporting.write(loaded, out or loaded.path or run):
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
    file: Annotated[Path, typer.Argument(help="the site's wishes, TOML")],
    out: Annotated[Optional[Path], typer.Option(help="also write the plan as HTML and Markdown here")] = None,
    format: FormatOption = Format.text,
) -> None:
    """Hosts, disks, shares, binding limits and five-year cost of a site."""
    from lab import plan as planning

    made = planning.plan_file(file)
    if format is Format.json:
        emit_json(planning.as_dict(made))
    else:
        planning.print_plan(made, console)
    if out:
        for path in planning.write(made, out):
            complaints.print(str(path), soft_wrap=True, highlight=False)


class UserError(Exception):
    """Something that the user can put right; the message is one sentence."""


def main() -> None:
    try:
        app(standalone_mode=True)
    except (UserError, RecordError) as e:
        complaints.print(f"lab: {e}", highlight=False, markup=False, soft_wrap=True)
        raise SystemExit(2) from None
