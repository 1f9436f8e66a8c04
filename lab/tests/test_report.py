"""The report: what it says, what it admits, and that the page stands alone."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest
from invented import Invention, boot, failure, formats, matrix
from lab import plots_studies, report, report_data, report_text, stats
from lab.records import BackendState, Run
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
    assert sentences(run, "bandwidth")[0].endswith("Not like with like: 1 copy against 2 copies.")
    # With a reference of as many copies, that one is taken.
    inv = Invention(["boot"], 6)
    boot(inv, ["skep:1", "skep:2", "gluster:2"])
    assert [(p.reference, p.other) for p in report_data.views(inv.run)[0].pairs] == [("skep:2", "gluster:2")]


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
