"""Runs on several kinds of disk become one, and stay told apart."""

import pytest
from invented import Invention
from lab import merge, plots, plots_studies, report_data
from lab.records import Curves, Measured, RunWriter, keep_curves, load_curves, load_run


def written(path, level: float, state="complete"):
    inv = Invention(["matrix"], 6)
    for name in ("skep:1", "ceph:1"):
        inv.state("matrix", name)
        for read in (0, 100):
            inv.measure("matrix", name, {"bs": 4096, "read": read, "depth": 8, "clients": 1}, {"iops": level})
    with RunWriter(path) as w:
        w.head(path.name, inv.run.started, ["matrix"], {})
        w.environment(inv.run.environments[0])
        for s in inv.run.backends:
            w.backend(s)
        w.samples(inv.run.samples)
        w.end("2026-01-01T01:00:00Z", state, "" if state == "complete" else "a disk broke")
    keep_curves(path, "matrix", Measured("skep:1", {"bs": 4096, "read": 0, "depth": 8, "clients": 1}, 0, Curves({"write": [(100.0, 5)]}, 1.0, [5.0])))
    return path


def test_kinds_of_disk_are_lines_of_a_figure(tmp_path, monkeypatch):
    out = merge.write({"nvme": written(tmp_path / "a", 9000.0), "sas": written(tmp_path / "b", 3000.0)}, tmp_path / "both")
    run = load_run(out)
    assert run.end_state == "complete" and {s.case["disk"] for s in run.samples} == {"nvme", "sas"} and len(load_curves(run, "matrix")) == 2
    view = report_data.views(run)[0]
    # Back ends meet on the same disk only.
    assert len([c for c in view.compared if c.metric == "iops"]) == 4
    drawn = {}
    shape = plots.lines
    monkeypatch.setattr(plots, "lines", lambda name, caption, panels, *a, **m: drawn.update({name: panels}) or shape(name, caption, panels, *a, **m))
    plots_studies.figures(view)
    (ours,) = [p for p in drawn["matrix-disks"] if p.title.startswith("Skep")]
    points = {ln.label: {x: y for x, y, _, _ in ln.points} for ln in ours.lines}
    assert set(points) == {"disk nvme", "disk sas"}
    assert points["disk sas"][0.0] == next(c.interval.median for (m, b, case), c in view.cells.items() if (m, b) == ("iops", "skep:1") and dict(case) == {"bs": 4096, "read": 0, "depth": 8, "clients": 1, "disk": "sas"})


def test_a_part_that_is_not_whole_makes_the_whole_partial(tmp_path):
    run = load_run(merge.write({"a": written(tmp_path / "a", 1.0, "partial"), "b": written(tmp_path / "b", 1.0)}, tmp_path / "both"))
    assert (run.end_state, run.end_reason) == ("partial", "a: a disk broke")


@pytest.mark.parametrize("words,said", [(["nvme=x"], "two kinds"), (["nvme"], "such as nvme="), (["a=x", "a=y"], "a is named twice")])
def test_wrong_words_are_refused(words, said):
    with pytest.raises(merge.MergeError, match=said):
        merge.parse(words)


def test_what_is_there_is_not_overwritten_nor_merged_twice(tmp_path):
    a, b = written(tmp_path / "a", 1.0), written(tmp_path / "b", 1.0)
    with pytest.raises(merge.MergeError, match="is there already"):
        merge.write({"x": a, "y": b}, b)
    both = merge.write({"x": a, "y": b}, tmp_path / "both")
    with pytest.raises(merge.MergeError, match="has kinds of disk already"):
        merge.write({"x": both, "y": b}, tmp_path / "again")
