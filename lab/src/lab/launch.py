"""From the options of `lab run` to a run that ended: settings, directory, signals, report, exit status.

Exit status: 0 complete, 1 partial (something could not be measured; the report names it), 3 stopped or interrupted
(resumable). SIGTERM and SIGHUP end a run as Ctrl-C does: what was measured is kept, what was started is ended.
"""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Callable, Optional

from rich.console import Console
from rich.text import Text

from lab.config import PRESETS, Config, ConfigError, check_without_site, load, restore
from lab.backends import parse
from lab.estimate import estimate
from lab.live import View
from lab.process import ToolError
from lab.records import RecordError, Run, RunWriter, load_run
from lab.runner import Options, Runner, Stopped, now, one_line
from lab.site import DELAYED
from lab.site_file import BACKENDS, SiteFile
from lab.site_file import read as read_site
from lab.studies import KINDS

COMPLETE, PARTIAL, INTERRUPTED = 0, 1, 3


class UserError(Exception):
    """Something that the user can put right; the message is one sentence."""


@dataclass
class Request:
    studies: list[str]
    backends: list[str]
    profile: str
    config: Optional[Path]
    out: Optional[Path]
    resume: Optional[Path]
    rounds: int
    stop_after: float
    locks: list[Path]
    durable: bool = False
    site: Optional[Path] = None
    preset: str = ""


def run(request: Request, console: Console, report: bool, emit: Callable[[Any], None] | None) -> int:
    directory, config, options, earlier = resumed(request) if request.resume else fresh(request)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    failed: Exception | None = None  # of the lab's own making: the report comes all the same
    with RunWriter(directory) as writer:
        if earlier:
            writer.resume(now())
        else:
            writer.head(directory.name, now(), options.studies, {"profile": request.preset or request.profile, "backends": options.backends, "config": asdict(config)})
        try:
            with View(console) as view:
                work = Runner(config, options, writer, view, earlier)
                state, reason = work.run()
        except (KeyboardInterrupt, Stopped) as e:
            state, reason = "interrupted", str(e) or "by a signal"
        except ToolError as e:  # a site whose hosts or services are not there: nothing was measured
            state, reason = "partial", "; ".join([str(e), *work.left])
        except (ConfigError, RecordError, UserError):  # the user can put that right
            raise
        except Exception as e:
            state, reason, failed = "partial", "; ".join([f"the lab itself failed: {type(e).__name__}: {one_line(e)}", *work.left]), e
        writer.end(now(), state, reason, work.seconds())
    _report(directory, console, report and state != "interrupted", emit)
    if failed:
        raise failed
    return {"complete": COMPLETE, "partial": PARTIAL}.get(state, INTERRUPTED)


def dry_run(request: Request) -> dict[str, Any]:
    if request.resume:
        raise UserError("--dry-run is for a new run; --resume says by itself how much is left")
    _, config, options, _ = fresh(request)
    return estimate(config, options.studies, options.backends)


def _interrupt(number: int, _: Any) -> None:
    raise KeyboardInterrupt(f"by {signal.Signals(number).name}")


def fresh(request: Request) -> tuple[Path, Config, Options, None]:
    if request.preset:
        if request.preset not in PRESETS:
            raise UserError(f"no study of {request.preset!r}; there are {', '.join(PRESETS)}")
        if request.studies or request.profile != "quick":
            raise UserError("--study brings its studies and settings: none beside it; -c changes settings")
        request = replace(request, studies=PRESETS[request.preset], profile=request.preset)
    config = load(request.profile, request.config)
    config.run.durable |= request.durable
    if request.site:
        config.run.site = str(request.site.absolute())
        take_site(config, site := read_site(request.site))
    if request.rounds:
        config.run.rounds = request.rounds
        for name in KINDS:
            getattr(config, name).rounds = 0
    if not request.studies:
        raise UserError(f"which study? {', '.join(KINDS)}, or all")
    studies = list(KINDS) if request.studies == ["all"] else request.studies
    for name in studies:
        if name not in KINDS:
            raise UserError(f"no study {name!r}; there are {', '.join(KINDS)}, or all")
    for name in [*request.backends, *config.run.backends, *(b for s in KINDS for b in getattr(config, s).backends)]:
        parse(name)
    backends = [canonical(b) for b in request.backends]
    for settings in (config.run, *(getattr(config, s) for s in KINDS)):
        settings.backends = [canonical(b) for b in settings.backends]
    if config.run.site:
        check_site(config, site, studies, backends)
    else:
        check_without_site(config, studies)
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    directory = request.out or Path(config.run.out) / f"{studies[0] if len(studies) == 1 else 'run'}-{stamp}"
    if (directory / "run.jsonl").exists():
        raise UserError(f"{directory} has a run already; --resume goes on with it")
    return directory, config, Options(studies, backends, request.locks, request.stop_after), None


SITE_STUDIES, SITE_BACKENDS = tuple(name for name, study in KINDS.items() if study.over_site), BACKENDS


def take_site(config: Config, site: SiteFile) -> None:
    """The site says where its storage is."""
    for kind, (conf, pool) in site.clusters.items():
        settings = getattr(config, kind)
        settings.conf, settings.pool, settings.user = conf, pool, site.users[kind]
    if site.mount:
        config.mount.path, config.mount.acknowledged = site.mount, site.acknowledged


def check_site(config: Config, site: SiteFile, studies: list[str], backends: list[str]) -> None:
    """Before anything starts: what cannot be measured over ssh is refused."""
    if wrong := [s for s in studies if s not in SITE_STUDIES]:
        raise UserError(f"--site measures {', '.join(SITE_STUDIES)} so far, not {', '.join(wrong)}: their guests and clients run on this machine")
    for name in dict.fromkeys(b for s in studies for b in backends or getattr(config, s).backends or config.run.backends):
        kind = name.partition(":")[0]
        if kind not in SITE_BACKENDS:
            raise UserError(f"--site measures {', '.join(SITE_BACKENDS)}, not {kind}: the lab starts that on this machine")
        if kind not in site.kinds:
            what = {"mount": "path", "ceph": "conf", "skep": "conf, or hosts", "gluster": "volume, or hosts"}[kind]
            raise UserError(f"{config.run.site} does not say where {kind} is: a table [{kind}] with {what}")
    if not site.servers and any(any(grid.get("delay", [])) for s in studies if s in DELAYED for grid in getattr(config, s).grid):
        raise UserError(f"{config.run.site} has no host with the role server: there is no way that could be delayed")


def canonical(name: str) -> str:
    kind, copies = parse(name)
    return f"{kind.kind}:{copies}"


def resumed(request: Request) -> tuple[Path, Config, Options, Run]:
    """The settings are those that the run began with: its samples must stay comparable."""
    if request.studies or request.backends or request.config or request.rounds or request.durable or request.site or request.preset:
        raise UserError("--resume takes its studies, back ends and settings from the run itself")
    earlier = load_run(request.resume)
    try:
        config = restore(earlier.options["config"])
        options = Options(earlier.studies, list(earlier.options["backends"]), request.locks, request.stop_after)
    except (KeyError, TypeError, ConfigError) as e:
        raise UserError(f"{request.resume}: its head does not say how it was run: {e}") from e
    return earlier.path or request.resume, config, options, earlier


FINDINGS_SHOWN = 20  # on screen; the report has all


def _verdicts(done: Run) -> list[Text]:
    """What differs, in the report's own sentences, with a count of what is left to it."""
    from lab import report_data, report_text

    styles = {"better": "green", "worse": "red"}
    found = [f for view in report_data.views(done) for f in report_text.findings(view)]
    lines = [Text.assemble((f"{f.badge}: ", styles.get(f.gain, "")), f.sentence) for f in found[:FINDINGS_SHOWN]]
    return lines + ([Text(f"and {len(found) - FINDINGS_SHOWN} more sentences in the report")] if len(found) > FINDINGS_SHOWN else [])


def _report(directory: Path, console: Console, wanted: bool, emit: Callable[[Any], None] | None) -> None:
    done = load_run(directory)
    if emit or wanted:
        from lab import report as reporting
    if emit:
        emit(reporting.summary(done))
    console.print(f"{done.end_state}{': ' + done.end_reason if done.end_reason else ''}", markup=False, highlight=False, soft_wrap=True)
    if wanted:
        for line in _verdicts(done):
            console.print(line, soft_wrap=True)
        for path in reporting.write(done, directory):
            console.print(str(path), highlight=False, soft_wrap=True)
    else:
        console.print(str(directory), highlight=False, soft_wrap=True)
