"""What the second round of the lab mended and no other test held: whose time is counted, durability, lower bounds, estimates, first steps,
quotations."""

import contextlib
import json
import re
import time
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from invented import Invention
from rich.console import Console

from lab import account, estimate, fio, inventory, launch, report, report_data, report_text
from lab.backends import KINDS as BACKENDS
from lab.backends import Disk
from lab.config import PRESETS, Config, load
from lab.launch import _verdicts
from lab.live import View
from lab.process import Done
from lab.records import METRICS, PUBLISHED, STUDIES
from lab.studies import KINDS
from lab.studies import boot, failure
from lab.studies.base import Accounting, Study
from lab.studies.boot import Boot

# --- point 1: a report always comes


def test_a_report_comes_also_where_the_lab_itself_fails(tmp_path, monkeypatch):
    """A traceback out of `finally` was all that a run left."""

    class Failing:
        left = ["pool p stays"]

        def __init__(self, config, options, writer, view, earlier): ...

        def run(self):
            raise KeyError("of the lab's making")

        def seconds(self):
            return {"seconds": 1.0, "waited": 0.0}

    monkeypatch.setattr(launch, "Runner", Failing)
    with pytest.raises(KeyError):
        launch.run(launch.Request(["matrix"], ["file:1"], "quick", None, tmp_path / "run", None, 1, 0.0, []), Console(file=StringIO()), True, None)
    page = (tmp_path / "run/report.html").read_text()
    assert "This report is partial" in page and "the lab itself failed: KeyError" in page and "pool p stays" in page


# --- points 6 and 7: whose time, and which writes


class Plain(Study):
    name = "matrix"

    def cases(self, backend): ...
    def measure(self, backend, case, round): ...


def a_study(kind, config=None, scratch=None):
    return kind(SimpleNamespace(config=config or Config(), scratch=scratch, services={}, site=None), SimpleNamespace(accel=lambda: "tcg"))


def side(operations, runtime_ms):
    return {"total_ios": operations, "iops": operations / runtime_ms * 1e3, "bw_bytes": 1, "io_bytes": operations * 4096, "runtime": runtime_ms,
            "clat_ns": {"mean": 1e6, "max": 2e6, "percentile": {"50.000000": 1e6, "99.000000": 2e6}}}


def a_document(stamp):
    none = {"total_ios": 0, "io_bytes": 0, "runtime": 0, "iops": 0, "bw_bytes": 0, "clat_ns": {}}
    return {"timestamp_ms": round(stamp * 1000), "jobs": [{"jobname": "x", "error": 0, "read": none, "write": side(1000, 2000)}]}


def run_fio(monkeypatch, argv=("fio",)):
    """A fio of 2 s behind 8 s of start and ramp; servers used a core in the ramp and half of one later."""
    asked = []

    class Servers:
        def between(self, start, end):
            asked.append((start, end))
            return account.Used(end - start, 0.5 * (end - start), round(2 * 4096 * 1000))

    @contextlib.contextmanager
    def accounted(self, backend):
        found = Accounting()
        yield found
        found.servers, found.server_cpu_s, found.server_written = Servers(), 9.0, 10**9

    monkeypatch.setattr(Study, "accounted", accounted)
    scratch = SimpleNamespace(run=lambda argv, **_: Done(list(argv), 0, json.dumps(a_document(time.time())), "", 10.0, 1.0))
    values, _ = a_study(Plain, scratch=scratch).run_fio(SimpleNamespace(client_env=dict), list(argv), 10.0)
    return values, asked


def test_a_figure_per_operation_is_of_the_time_in_which_fio_counted(monkeypatch):
    """Averaged over fio's whole process they came out too low: 57 us for 73, and 1.79 for 2.24."""
    values, asked = run_fio(monkeypatch)
    assert values["server_cpu_per_op"] == pytest.approx(0.5 * 2 / 1000 * 1e6, rel=1e-3) and values["write_amplification"] == pytest.approx(2.0)
    assert asked[0][1] - asked[0][0] == pytest.approx(2.0) and abs(asked[0][1] - time.monotonic()) < 60


def test_where_fio_flushes_after_each_write_no_latency_is_claimed(monkeypatch):
    assert "latency_p99" in run_fio(monkeypatch)[0] and not [k for k in run_fio(monkeypatch, ["fio", fio.FLUSH_EACH])[0] if k.startswith("latency_")]


@pytest.mark.parametrize("durable", [False, True])
def test_durable_makes_every_write_flushed_where_the_back_end_answers_before(durable):
    config = Config()
    config.run.durable = durable
    study = a_study(Plain, config)
    for kind in BACKENDS.values():
        if kind.acknowledged and kind.acknowledged != "flushed" and kind.fio is not None:
            backend = SimpleNamespace(fio=lambda disk: ["--engine"], durable_fio=kind.durable_fio)
            with study.target(backend, Disk("d", 1, "raw")) as target:
                assert target == ["--engine", *(kind.durable_fio if durable else ())] and kind.durable_fio
    said = BACKENDS["file"].options(SimpleNamespace(config=config, durable_fio=BACKENDS["file"].durable_fio, acknowledged="sent", acknowledged_where="x"))
    assert said["acknowledged"] == ("flushed" if durable else "sent")


def test_every_kind_of_write_is_told_apart():
    assert {k: b.acknowledged for k, b in BACKENDS.items() if k in ("skep", "ceph", "cephfs", "gluster", "file", "nfs")} == {
        "skep": "flushed", "ceph": "flushed", "cephfs": "flushed", "gluster": "cached", "file": "sent", "nfs": "cached"}
    assert all(b.acknowledged in ("flushed", "sent", "cached") or k == "mount" for k, b in BACKENDS.items() if k in (
        "skep", "skep-hosts", "ceph", "cephfs", "gluster", "gluster-gfapi", "file", "block", "nfs", "lvm"))


# --- point 9: lower bounds, sizes, estimates


def failure_values(completions, times):
    log = "".join(f"{round(t * 1000)}, 1000000, 1, 4096, 0\n" for t in completions)
    document = a_document(1.0)
    document["jobs"][0] |= {"total_err": 0}
    return failure.values(log, json.dumps(document), times)


def test_a_stall_as_long_as_the_outage_is_a_lower_bound():
    times = {"struck": 10.0, "back": 15.0, "whole": 16.0}
    hung = failure_values([9.0, 9.9, 10.01, 15.2, 15.9], times)  # one was on its way when it was struck
    assert hung["stall_censored"] == 1.0 and hung["stall"] > 5
    went_on = failure_values([9.0, 9.9, 12.0, 13.0, 15.2, 15.9], times)
    assert went_on["stall_censored"] == 0.0 and went_on["stall"] < 3


def with_stalls(ours, theirs):
    inv = Invention(["failure"], 7)
    for name, censored in (("skep:3", ours), ("ceph:3", theirs)):
        inv.state("failure", name)
        inv.measure("failure", name, {"fault": "hang"}, {"stall": 5.0, "recovery_time": 3.0}, noise=0.01)
        for sample in [s for s in inv.run.samples if s.backend == name and s.metric == "stall"]:
            inv.run.samples.append(type(sample)(**{**sample.__dict__, "metric": "stall_censored", "value": censored, "unit": METRICS["stall_censored"].unit}))
    return inv.run


def test_lower_bounds_are_shown_as_such_and_two_of_them_are_not_judged(tmp_path):
    run = with_stalls(1.0, 1.0)
    report.write(run, tmp_path)
    assert "≥ " in (tmp_path / "report.md").read_text() and "a lower bound" in (tmp_path / "report.html").read_text()
    (view,) = report_data.views(run)
    assert any("both are only lower bounds" in f.sentence for f in report_text.findings(view) if f.metric == "stall")
    other = tmp_path / "other"
    report.write(with_stalls(0.0, 0.0), other)
    assert "≥ " not in (other / "report.md").read_text()
    # One that is a bound is said in the sentence, in the figure and on the headline page, too; the other is none.
    third = tmp_path / "third"
    report.write(with_stalls(0.0, 1.0), third)
    page, figure = (third / "report.html").read_text(), (third / "plots/failure-medians.svg").read_text()
    assert "Stalls of Ceph RBD (3 copies) lasted as long as the outage: at least so long." in page.replace("ceph:3", "Ceph RBD (3 copies)")
    assert figure.count("(at least)") == 1 and (third / "headline.html").read_text().count("≥ ") == 1


def test_a_boot_says_how_much_it_writes_and_compares_no_time_that_was_fixed():
    config = Config()
    config.boot.size, config.boot.runtime = 64 << 20, 3.0
    backend = SimpleNamespace(formats=("rbd",))
    assert a_study(Boot, config).cases(backend)[0]["writes"] == "for 3 s"
    config.boot.runtime = 0.0
    assert a_study(Boot, config).cases(backend)[0]["writes"] == "64.0 MiB"


@pytest.mark.parametrize("runtime, told", [(3.0, False), (0.0, True)])
def test_a_time_that_was_fixed_is_no_run_time(monkeypatch, runtime, told):
    class Machine(contextlib.nullcontext):
        def __init__(self, *_):
            super().__init__(self)

        def start(self): ...
        def stop(self): ...

        def wait_for(self, text, limit):
            return (2.0 if "up" in text else 9.0), ""

        def between(self, *_):
            return json.dumps(a_document(1.0))

    monkeypatch.setattr(boot, "Machine", Machine)
    monkeypatch.setattr(boot, "imported_base", lambda *_: None)
    monkeypatch.setattr(Study, "accounted", lambda self, backend: contextlib.nullcontext(Accounting()))
    config = Config()
    config.boot.runtime = runtime
    study = a_study(Boot, config)
    study.guests.image = lambda: None
    nothing = lambda *_, **__: {}  # noqa: E731
    backend = SimpleNamespace(clone=nothing, blockdev=nothing, client_env=nothing, remove=nothing)
    values = study.measure(backend, {"format": "rbd", "accel": "tcg"}, 0)[0].values
    assert ("run_time" in values) == told and values["boot_time"] == 2.0


@pytest.mark.parametrize("study", list(STUDIES))
def test_each_study_of_the_night_s_grids_ends_by_the_morning(study, tmp_path, monkeypatch):
    config = load("night")
    config.run.scratch = str(tmp_path)
    for kind in BACKENDS.values():
        monkeypatch.setattr(kind, "missing", classmethod(lambda cls, config: []))
    monkeypatch.setattr(KINDS[study], "missing", lambda self: [])
    found = estimate.estimate(config, [study], [])
    assert 0 < found["seconds"] < 10 * 3600, estimate.duration(found["seconds"])


def test_the_full_grids_are_said_to_take_weeks_where_they_do(tmp_path, monkeypatch):
    config = load("full")
    config.run.scratch = str(tmp_path)
    for kind in BACKENDS.values():
        monkeypatch.setattr(kind, "missing", classmethod(lambda cls, config: []))
    found = estimate.estimate(config, ["matrix"], [])
    assert found["seconds"] > 86_400 and estimate.duration(3 * 86_400) == "3.0 days"


def test_a_preset_s_studies_are_the_published_ones():
    assert PRESETS["oliveira"] == ["boot"] and load("oliveira").boot.size == 1 << 30 and load("oliveira").boot.runtime == 0


# --- point 10: quotations


def test_sentences_about_studies_are_those_of_the_papers():
    assert "Borges et al. 2017" in STUDIES["layouts"].source
    assert STUDIES["boot"].source.startswith("Oliveira 2019")  # one author
    assert "over 90 % of the processor time consumed on the nine storage hosts" in STUDIES["matrix"].published
    written = [p for p in (Path(report.__file__).parent).rglob("*") if p.suffix in (".py", ".toml", ".j2")]
    written += [p for p in Path(__file__).parents[1].rglob("*.md") if p.name != "quotations.md"]
    written += sorted((Path(__file__).parents[2] / "docs/assessment").glob("*/report.html"))
    for path in [p for p in written if p.is_file()]:
        text = path.read_text()
        assert not re.search(r"Oliveira et al|Borges et al\. 20(?!17)|Ding et al\. 20|Johari et al\. 20|90 % of (a|the) host at|90 % of (a|the) hosts?'s? processors|ten storage hosts|survey of 2018", text), path


def test_every_value_and_sentence_of_a_study_is_in_the_list_of_quotations():
    """lab/docs/quotations.md says where each was checked; one that is drawn or printed and is not in it was not checked."""
    listed = (Path(__file__).parents[1] / "docs/quotations.md").read_text()
    for p in PUBLISHED:
        value = {"B/s": p.value / 1e6, "B": p.value / 1e6}.get(METRICS[p.metric].unit, p.value)
        assert re.search(rf"(?<![0-9.,]){re.escape(f'{value:,.10g}')}(?![0-9])", listed), p
    names = ("Oliveira", "Johari et al.", "Ding et al.", "Ra", "Borges et al.")
    for info in STUDIES.values():
        assert not any(n in info.source for n in names) or re.search(rf"`STUDIES` (\w+, )*{info.name}\b", listed), info.name
    assert all(re.search(rf"\| (holds|rephrased)", row) for row in listed.splitlines() if row.startswith("| ") and not row.startswith("| sentence"))


# --- point 11: first steps


def test_the_view_has_no_time_left_before_there_is_a_plan_and_that_of_all_studies_after():
    out = StringIO()
    view = View(Console(file=out, width=120, force_terminal=True))
    assert view.left() == "time left not known yet"
    view.starting("skep:1")
    assert view.now == "starting skep:1 ..."
    view.plan("matrix", "a:1", 10, 0, 100.0)
    view.plan("boot", "a:1", 5, 0, 500.0)
    assert view.seconds_left() == pytest.approx(600.0) and view.left() == "0:10:00 left"
    view.measured("matrix", "a:1", 2.0, [], (), "")
    assert view.seconds_left() == pytest.approx(9 * 2.0 + 500.0)


def test_kvm_is_no_where_the_trial_guest_hung(tmp_path, monkeypatch):
    monkeypatch.setattr(inventory.os, "access", lambda *_: True)
    monkeypatch.setattr(inventory, "trial_mark", lambda: tmp_path / "kvm")
    assert "not tried yet" in inventory.kvm_missing()[0]
    (tmp_path / "kvm").write_text("hung")
    assert "hung" in inventory.kvm_missing()[0]
    (tmp_path / "kvm").write_text("works")
    assert inventory.kvm_missing() == []


def test_a_run_ends_with_its_verdicts():
    inv = Invention(["boot"], 7)
    for name in ("skep:1", "ceph:1"):
        inv.state("boot", name)
        inv.measure("boot", name, {"accel": "tcg"}, {"bandwidth": 6e6, "boot_time": 4.0})
    lines = [line.plain for line in _verdicts(inv.run)]
    assert any(line.startswith("better: ") and "Skep" in line for line in lines)


def test_every_package_that_is_named_as_missing_is_in_the_list_of_the_first_steps(monkeypatch):
    # glusterfs-cli comes with glusterfs-server.
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    listed = set(re.search(r"apt-get install (.*?)\n\n", readme, re.S).group(1).replace("\\", " ").split())
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    named = {p for kind in BACKENDS.values() if kind.kind in ("skep-hosts", "ceph", "cephfs", "gluster", "gluster-gfapi", "nfs", "file")
             for text in kind.missing(Config()) for p in re.findall(r"\(Debian: ([a-z0-9.+-]+)", text)}
    assert named - listed <= {"glusterfs-cli"} and {"etcd-server", "etcd-client"} <= named


