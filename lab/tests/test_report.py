"""The report: what it says, what it admits, and that the page stands alone."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest
from invented import Invention, boot, failure, formats, matrix
from lab import plots_studies, plots_view, report, report_data, report_text, stats
from lab.records import BackendState, Curves, Measured, RecordError, Run, Sample, keep_curves, load_curves
from lab.report_units import factor_value, significant, written


def one_study(study, names, rounds=7, **more) -> Run:
    inv = Invention([study.__name__], rounds)
    study(inv, names, **more)
    return inv.run


def sentences(run: Run, metric: str) -> list[str]:
    return [f.sentence for v in report_data.views(run) for f in report_text.findings(v) if f.metric == metric]


def test_a_sentence_says_what_differs():
    run = one_study(boot, ["skep:1", "ceph:1"])
    said = sentences(run, "boot_time")
    assert len(said) == 1
    assert re.fullmatch(r"Boot time: Skep \(1 copy\) \d\.\d+ s, Ceph RBD \(1 copy\) \d\.\d+ s; ratio 0\.\d+ \(0\.\d+ to 0\.\d+\): better\.", said[0]), said
    run = one_study(boot, ["skep:1", "file:1"])
    assert sentences(run, "bandwidth")[0].endswith(": worse.")


def test_equal_back_ends_are_not_called_different():
    inv = Invention(["boot"], 9)
    for name in ("x:1", "y:1"):
        inv.state("boot", name)
        inv.measure("boot", name, {}, {"boot_time": 2.0}, noise=0.1)
    assert sentences(inv.run, "boot_time")[0].endswith("no difference shown.")


def test_too_few_rounds_are_admitted():
    said = sentences(one_study(boot, ["skep:1", "ceph:1"], rounds=3), "bandwidth")[0]
    assert "3 rounds: too few to say" in said and "better" not in said


def test_copies_that_differ_are_named():
    run = one_study(boot, ["skep:1", "gluster:2"])
    assert sentences(run, "bandwidth")[0].endswith(": not judged, since copies differ: 1 copy against 2 copies.")
    # With a reference of as many copies, that one is taken.
    inv = Invention(["boot"], 6)
    boot(inv, ["skep:1", "skep:2", "gluster:2"])
    assert [(p.reference, p.other) for p in report_data.views(inv.run)[0].pairs] == [("skep:2", "gluster:2")]


def said_of(options: dict[str, dict], metric="iops", **more) -> report_text.Finding:
    """The finding on two back ends of the same name but these options; the first is twice as fast."""
    inv = Invention(["matrix"], 7)
    matrix(inv, ["skep:1", "ceph:1"], depths=(1,), blocks=(4096,), **more)
    inv.run.backends = [BackendState(n, "matrix", "done", "", n, "1.0", o) for n, o in options.items()]
    view = report_data.views(inv.run)[0]
    return next(f for f in report_text.findings(view, [metric]))


def test_only_equals_are_judged():
    """Stores that answer from a cache were called worse or better than those that flush."""
    flushed, cached = {"acknowledged": "flushed"}, {"acknowledged": "in the page cache of every brick's host; on disk only after a flush by the client"}
    assert said_of({"skep:1": flushed, "ceph:1": flushed}, reads=(0,)).gain == "better"
    found = said_of({"skep:1": flushed, "ceph:1": cached}, reads=(0,))
    assert (found.gain, found.badge) == ("unlike", "not judged")
    assert found.sentence.endswith("not judged, since writes are answered when flushed against cached.")
    # Reads are answered alike.
    assert said_of({"skep:1": flushed, "ceph:1": cached}, reads=(100,)).gain == "better"
    mixed = said_of({"skep:1": flushed, "ceph:1": cached}, reads=(0, 50, 100))
    assert (mixed.gain, mixed.badge) == ("mixed", "1 better of 3")


def test_memory_is_judged_at_equal_budgets():
    small, large = {"acknowledged": "flushed", "osd_memory": 256 << 20}, {"acknowledged": "flushed", "osd_memory": 1 << 30}
    assert "memory budgets differ: 256 MiB against 1024 MiB" in said_of({"skep:1": small, "ceph:1": large}, "server_memory", reads=(0,)).sentence
    assert said_of({"skep:1": small, "ceph:1": small}, "server_memory", reads=(0,)).gain == "better"


def test_whoever_wants_it_judges_unlike_things_and_other_pairs():
    inv = Invention(["boot"], 6)
    boot(inv, ["skep:1", "gluster:2", "file:1"])
    view = report_data.views(inv.run, report_data.Wishes(judge_unlike=True))[0]
    assert {c.gain for c in view.compared if c.metric == "bandwidth"} == {"better", "worse"}
    pairs = [(p.reference, p.other) for p in report_data.views(inv.run, report_data.Wishes(reference="file:1"))[0].pairs]
    assert pairs == [("file:1", "skep:1"), ("file:1", "gluster:2")]
    assert len(report_data.views(inv.run, report_data.Wishes(all_pairs=True))[0].pairs) == 3
    with pytest.raises(RecordError, match="no results of ceph:3; the run has file:1, gluster:2, skep:1"):
        report_data.views(inv.run, report_data.Wishes(reference="ceph:3"))


def test_a_badge_speaks_of_all_cases():
    """One case of six was better, and the badge was green."""
    inv = Invention(["matrix"], 9)
    for name, first in (("skep:1", 3000.0), ("ceph:1", 1000.0)):
        inv.state("matrix", name)
        for i, read in enumerate((0, 20, 40, 60, 80, 100)):
            inv.run.samples += [
                Sample("matrix", name, {"bs": 4096, "read": read}, "iops", (first if i == 0 else 1000.0) * (1 + 0.01 * ((r * 7 + len(name) * i) % 5)), "1/s", r, "2026-01-01T00:00:00Z")
                for r in range(9)
            ]
    found = report_text.findings(report_data.views(inv.run)[0])[0]
    assert (found.gain, found.badge) == ("mixed", "1 better of 6") and "better in 1 of 6 cases" in found.sentence


def test_equal_back_ends_seldom_get_a_verdict():
    """Of reports on equal back ends with six cases 32 to 38 % had a coloured badge."""
    coloured, reports = 0, 120
    for seed in range(reports):
        inv = Invention(["matrix"], 5, seed)
        for name in ("x:1", "y:1"):
            inv.state("matrix", name)
            for read in (0, 20, 40, 60, 80, 100):
                inv.measure("matrix", name, {"bs": 4096, "read": read}, {"iops": 1000.0}, noise=0.08)
        coloured += any(f.gain not in ("same", "undecided") for f in report_text.findings(report_data.views(inv.run)[0]))
    assert coloured <= 0.09 * reports, f"{coloured} of {reports}"


def test_many_cases_are_counted():
    run = one_study(matrix, ["skep:1", "ceph:1"], depths=(1,), blocks=(4096,))
    assert "is better in all 11 cases, ratios 1." in sentences(run, "iops")[0]


def test_formats_of_one_back_end_are_compared_as_back_ends():
    view = report_data.views(one_study(formats, ["skep:1", "gluster:2"]))[0]
    assert [b.name for b in view.backends] == ["skep:1/rbd", "gluster:2/raw", "gluster:2/qcow2", "gluster:2/qed"]
    assert view.title("gluster:2/qcow2") == "GlusterFS FUSE (2 copies), qcow2"
    assert len(view.compared) == 3 * 16 and "format" not in dict(view.cases[0])


@pytest.mark.parametrize(
    "state,reason,said",
    [
        ("skipped", "no FUSE here", "was not measured: no FUSE here."),
        ("failed", "brick 1 ended", "failed in mid-run: brick 1 ended; its results until then are kept and partial."),
        ("ready", "", "is unfinished: the run ended before this back end was through; its results are partial."),
    ],
)
def test_what_is_missing_is_named(state, reason, said, tmp_path):
    inv = Invention(["boot"], 5)
    boot(inv, ["skep:1", "ceph:1"])
    if state == "skipped":
        inv.run.samples = [s for s in inv.run.samples if s.backend == "skep:1"]
    inv.run.backends.append(BackendState("ceph:1", "boot", state, reason, "Ceph RBD, 1 copy"))
    view = report_data.views(inv.run)[0]
    assert report_text.missing(view) == [f"Ceph RBD (1 copy) {said}"]
    report.write(inv.run, tmp_path)
    for name in ("report.html", "report.md"):
        assert said in (tmp_path / name).read_text()
    assert bool(report_text.completeness(inv.run, [view])) == (state != "skipped")


def test_failed_measurements_are_counted_with_their_error():
    inv = Invention(["matrix"], 5)
    matrix(inv, ["skep:1", "ceph:1"], depths=(1,), blocks=(4096,), reads=(0, 100))
    inv.failure("matrix", "ceph:1", {"bs": 4096, "read": 0, "depth": 1, "clients": 1}, 3, "fio ended with status 1")
    view = report_data.views(inv.run)[0]
    assert report_text.missing(view) == ["Ceph RBD (1 copy): 1 measurement failed (fio ended with status 1)."]
    assert report.summary(inv.run)["partial"].startswith("This report is partial")


def test_an_interrupted_run_says_so(tmp_path):
    inv = Invention(["boot"], 2)
    boot(inv, ["skep:1"])
    inv.run.end_state, inv.run.ended = "interrupted", ""
    report.write(inv.run, tmp_path)
    assert "This run was interrupted" in (tmp_path / "report.html").read_text()


def test_a_run_without_any_sample_gives_a_report(tmp_path):
    inv = Invention(["boot"], 0)
    inv.state("boot", "ceph:1", "skipped", "no Ceph packages")
    report.write(inv.run, tmp_path)
    assert "no Ceph packages" in (tmp_path / "report.md").read_text()
    json.dumps(report.summary(inv.run), allow_nan=False)


@pytest.fixture(scope="module")
def written_report(tmp_path_factory):
    inv = Invention(["boot", "failure"], 6)
    boot(inv, ["skep:1", "ceph:1"])
    failure(inv, ["skep:1", "ceph:1"])
    inv.state("boot", "<b>&evil", "skipped", "<script>alert(1)</script> | pipe")
    out = tmp_path_factory.mktemp("report")
    inv.run.path = out
    return out, report.write(inv.run, out), inv.run


def test_the_page_stands_alone(written_report):
    out, paths, _ = written_report
    page = (out / "report.html").read_text()
    assert not re.search(r'(src|href)="(https?:)?//|@import|<script', page)
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert 'href="run.jsonl"' in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids)), "ids of figures meet"
    for target in re.findall(r"url\(#([^)]+)\)", page):
        assert target in ids
    # Colours come from the page, so that both schemes work: no stand-in is left.
    assert "#0102" not in page and "#0203" not in page and "var(--s0)" in page


def test_figures_are_files_of_their_own_and_markdown_shows_them(written_report):
    out, paths, _ = written_report
    text = (out / "report.md").read_text()
    shown = re.findall(r"\]\((plots/[^)]+)\)", text)
    assert shown and sorted(str(p.relative_to(out)) for p in paths if p.suffix == ".svg") == sorted(shown)
    for name in shown:
        ET.fromstring((out / name).read_text())
    assert "prefers-color-scheme: dark" in (out / shown[0]).read_text()
    assert "\\| pipe" in text


def test_summary_is_json_and_agrees_with_stats(written_report):
    _, _, run = written_report
    found = json.loads(json.dumps(report.summary(run), allow_nan=False))
    cell = next(c for c in found["studies"][0]["cells"] if (c["metric"], c["backend"]) == ("boot_time", "ceph:1"))
    values = [s.value for s in run.samples if (s.study, s.metric, s.backend) == ("boot", "boot_time", "ceph:1")]
    assert cell["median"] == stats.median_interval(values).median and cell["rounds"] == 6


def test_the_same_run_gives_the_same_figures():
    run = one_study(boot, ["skep:1", "ceph:1"])
    first, second = ([f.svg for f in plots_studies.figures(report_data.views(run)[0])] for _ in range(2))
    assert first == second and len(first) >= 2


@pytest.mark.parametrize("text,value,unit", [("2.30 ms", 2300, "us"), ("25.0 MB/s", 25e6, "B/s"), ("4.00 KiB", 4096, "B"), ("12,345 /s", 12345, "1/s"),
                                             ("0", 0, "1"), ("-", None, "s"), ("121 s", 121.4, "s"), ("150 µs", 150, "us")])  # fmt: skip
def test_values_are_written_for_people(text, value, unit):
    assert written(value, unit) == text


def test_figures_that_count():
    assert [significant(v) for v in (1234.5, 99.96, 12.345, 1.2, 0.01234, -3.456)] == ["1,234", "100.0", "12.3", "1.20", "0.0123", "-3.46"]
    assert factor_value("bs", 1 << 20) == "1 MiB" and factor_value("read", 30) == "30 %"


def with_curves(tmp_path) -> Run:
    inv = Invention(["matrix"], 5)
    matrix(inv, ["skep:1", "ceph:1"], depths=(1, 8), blocks=(4096,), reads=(0, 50))
    inv.run.path = tmp_path
    (tmp_path / "raw").mkdir()
    for name, us in (("skep:1", 100.0), ("ceph:1", 200.0)):
        for number in range(3):
            curves = Curves({"read": [(us, 900), (10 * us, 100)], "write": [(2 * us, 50)]}, 0.1, [1000.0, 0.0, 2000.0 + number])
            keep_curves(tmp_path, "matrix", Measured(name, {"bs": 4096, "read": 50, "depth": 8, "clients": 1}, number, curves))
    return inv.run


def test_distributions_and_the_course_are_drawn_from_what_was_kept(tmp_path):
    run = with_curves(tmp_path)
    report.write(run, tmp_path / "out")
    drawn = {p.stem for p in (tmp_path / "out" / "plots").glob("*.svg")}
    assert {"matrix-distribution", "matrix-course", "matrix-depth-p99"} <= drawn
    distribution = (tmp_path / "out" / "plots" / "matrix-distribution.svg").read_text()
    page = (tmp_path / "out" / "headline.html").read_text()
    assert "Every comparison of headline metrics" in page
    assert "reads" in distribution and "writes" in distribution and "90 %" in distribution and "completion latency [" in distribution
    # Decimals of paths are cut, those of texts are not.
    assert ">0.00<" not in distribution
    view = report_data.views(run, curves={"matrix": load_curves(run, "matrix")})[0]
    assert len(view.curves) == 6 and plots_studies._courses(view) is not None
    # A run that kept none, as those of earlier labs, has neither.
    without = report_data.views(run)[0]
    assert plots_studies._courses(without) is None and plots_studies._distributions(without) is None


def test_curves_that_were_cut_or_repeated(tmp_path):
    run = with_curves(tmp_path)
    path = tmp_path / "raw" / "matrix.curves.jsonl.gz"
    again = Measured("skep:1", {"bs": 4096, "read": 50, "depth": 8, "clients": 1}, 0, Curves({}, 0.1, [7.0]))
    keep_curves(tmp_path, "matrix", again)
    assert [m.curves.course for m in load_curves(run, "matrix") if (m.backend, m.round) == ("skep:1", 0)] == [[7.0]]
    path.write_bytes(path.read_bytes()[:-20])
    assert len(load_curves(run, "matrix")) == 6
    path.write_bytes(b"rubbish")
    assert load_curves(run, "matrix") == []


def test_the_headline_page_says_the_verdicts_and_the_medians(tmp_path):
    inv = Invention(["matrix", "boot"], 7)
    matrix(inv, ["skep:1", "ceph:1", "file:1"], depths=(1,), blocks=(4096,), reads=(0, 100))
    boot(inv, ["skep:1", "ceph:1", "file:1"])
    run = inv.run
    run.end_state = "partial"
    report.write(run, tmp_path)
    page = (tmp_path / "headline.html").read_text()
    assert "This report is partial" in page and 'href="report.html#matrix"' in page and 'href="headline.html"' in (tmp_path / "report.html").read_text()
    assert not re.search(r'(src|href)="(https?:)?//|<script', page)
    boot_view = next(v for v in report_data.views(run) if v.info.name == "boot")
    for f in report_text.findings(boot_view):
        assert f.badge in page
    median = boot_view.cells[("boot_time", "skep:1", boot_view.cases[0])].interval.median
    assert f"<td>{significant(median)}</td>" in page
    assert "Every comparison of headline metrics" in page


@pytest.mark.parametrize(
    "study, preset, draw, texts",
    [
        (boot, "oliveira", plots_view.dots, ("Oliveira: Ceph, about 25", "Oliveira: both, about 2.30")),
        (matrix, "ra", plots_view.compared_with_published, ("Ra, block 4 KiB, 100 % reads",)),
    ],
)
def test_published_values_are_drawn_into_reports_of_their_preset_only(study, preset, draw, texts):
    run = one_study(study, ["skep:1", "ceph:1"], **({"blocks": (4096,), "reads": (0, 100)} if study is matrix else {}))
    plain = draw(report_data.views(run)[0])
    assert plain is None or not any(t in plain.svg for t in texts)
    run.options["profile"] = preset
    drawn = draw(report_data.views(run)[0])
    assert all(t in drawn.svg for t in texts)


def test_a_vm_s_samples_are_drawn_as_distributions():
    run = one_study(boot, ["skep:1", "ceph:1"], rounds=40)
    drawn = {f.name: f for f in plots_studies._boot(report_data.views(run)[0]) if f is not None}
    assert {"boot-samples-boot-time", "boot-samples-delete-time", "boot-samples-run-time", "boot-samples-bandwidth"} <= set(drawn)
    assert "share of VMs" in drawn["boot-samples-boot-time"].svg and "boot time [s]" in drawn["boot-samples-boot-time"].svg


def test_a_page_does_not_say_where_the_site_s_file_lies(tmp_path):
    run = one_study(matrix, ["skep:1", "ceph:1"], depths=(1,), blocks=(4096,), reads=(0, 100))
    run.options["config"] = {"run": {"site": "/home/somebody/sites/here.toml"}}
    report.write(run, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "here.toml" in page and "somebody" not in page + (tmp_path / "report.md").read_text()
