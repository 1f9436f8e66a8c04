"""Pages as readers have them, on a screen of 1,200 px and on a telephone of 390: nothing is cut, letters can be read; and figures do not mix axes."""

import os
from pathlib import Path

import browser
import pytest
from invented import Invention, boot, failure, formats, layouts, matrix, migrate, provision

from lab import plan, plots, report
from lab.records import load_run

needs_chromium = pytest.mark.skipif(not browser.CHROMIUM, reason="needs chromium")
MANY_COLUMNS = 9
LONG = os.environ.get("SKEP_TEST_LONG")  # dev/test --all: also the largest report
ASSESSMENTS = Path(__file__).parents[2] / "docs" / "assessment"
NAMES = ["skep:1", "ceph:1", "gluster:2", "file:1", "nfs:1"]


def everything(rounds=6):
    inv = Invention(["matrix", "boot", "formats", "provision", "migrate", "layouts", "failure"], rounds)
    matrix(inv, NAMES, depths=(1,), blocks=(4096, 1 << 20), reads=(0, 100))
    for study in (boot, formats, migrate, failure):
        study(inv, NAMES)
    for study in (provision, layouts):
        study(inv, NAMES[:2])
    inv.run.options["config"] = {"run": {"scratch": "/a/very/long/path/" * 12}}
    return inv.run


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of a run with all studies and every pair, of a plan, and of what was measured here."""
    out = tmp_path_factory.mktemp("pages")
    report.write(everything(), out / "invented")
    plan.write_example(out)
    plan.write(plan.plan_file(out / "plan-example.toml"), out / "plan")
    made = {"report": out / "invented/report.html", "headline": out / "invented/headline.html", "plan": out / "plan/plan.html"}
    measured = ASSESSMENTS / ("2026-11-27-quick" if LONG else "2026-11-27-failure")
    if (measured / "run.jsonl").exists():
        report.write(load_run(measured), out / "measured")
        made["measured"] = out / "measured/report.html"
    return made


@needs_chromium
@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("name", ["report", "headline", "plan", "measured"])
def test_nothing_is_cut_and_letters_can_be_read(pages, tmp_path, name, width):
    """Tables were cut at 1,200 px. What is wider than the page is in a frame of its own that scrolls, and the page itself never does."""
    if name not in pages:
        pytest.skip("needs docs/assessment")
    found = browser.measured(pages[name], tmp_path, width)
    assert found["tables"] > 2
    assert found["cut"] == [] and found["page"][0] <= found["page"][1] == width, found
    assert found["small"] == []


@needs_chromium
def test_what_was_measured_here_fits_a_screen_without_scrolling(pages, tmp_path):
    """But for tables of many columns: each disk format of each back end, beside its ratio."""
    if "measured" not in pages:
        pytest.skip("needs docs/assessment")
    assert [t for t in browser.measured(pages["measured"], tmp_path, 1200)["scrolled"] if t[3] <= MANY_COLUMNS] == []


@needs_chromium
def test_the_instrument_finds_what_is_cut(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<html><body style='margin:0'><div><table><tr><td style='min-width:2000px'>wide</td></tr></table></div>"
                    "<figure id='f'><svg width='100' height='20'><text font-size='3' y='9'>one</text><text font-size='3' y='9'>two</text></svg></figure></body></html>")  # fmt: skip
    found = browser.measured(page, tmp_path, 1200)
    assert found["cut"] and found["page"][0] > 1200 and [s[1] for s in found["small"]] == ["one", "two"] and found["upon"]


@pytest.fixture
def canvases(monkeypatch):
    caught = {}
    finish = plots._figure

    def catching(canvas, name, caption):
        caught[name] = canvas
        return finish(canvas, name, caption)

    monkeypatch.setattr(plots, "_figure", catching)
    return caught


def scales(canvas) -> tuple[set[str], set[str]]:
    shown = [a for a in canvas.axes if a.get_visible()]
    return {a.get_xscale() for a in shown}, {a.get_yscale() for a in shown}


def test_all_panels_of_a_figure_have_the_same_kind_of_axes(canvases, tmp_path):
    report.write(everything(), tmp_path)
    for name in ("quick", "delay", "provision", "failure") if LONG else ("failure", "provision"):
        if (ASSESSMENTS / f"2026-11-27-{name}/run.jsonl").exists():
            report.write(load_run(ASSESSMENTS / f"2026-11-27-{name}"), tmp_path)
    assert len(canvases) > 20 and any(len(c.axes) > 1 for c in canvases.values())
    assert {name: scales(c) for name, c in canvases.items() if max(map(len, scales(c))) > 1} == {}


@pytest.mark.parametrize(
    "groups, kind, said",
    [
        ([("a", [1.0, 200.0]), ("b", [3.0, 4.0])], "log", ""),  # far apart in one: both logarithmic
        ([("a", [1.0, 2.0]), ("b", [3.0, 4.0])], "linear", ""),
        ([("a", [1.0, 200.0]), ("b", [0.0, 4.0])], "linear", ""),  # a 0 has no place on a logarithmic axis
        ([("a", [1.0, 200.0]), ("b", [0.0, 0.0])], "log", "Nothing but 0: b."),
        ([("a", [0.0])], "linear", ""),
    ],
)
def test_metrics_in_one_figure_share_the_kind_of_axis(canvases, groups, kind, said):
    rows = [(title, "s", [plots.Dot(f"x{i}", i, v, None, None) for i, v in enumerate(values)]) for title, values in groups]
    figure = plots.dots("d", "Caption.", rows)
    assert scales(canvases["d"])[0] == {kind} and (said in figure.caption if said else "Nothing" not in figure.caption)
    assert len(canvases["d"].axes) == len(groups) - bool(said)


def test_panels_over_a_factor_share_the_kind_of_axis(canvases):
    panel = lambda title, ys: plots.Panel(title, [plots.Line("l", 0, [(float(x), y, None, None) for x, y in enumerate(ys)])])  # noqa: E731
    plots.lines("l", "", [panel("a", [1.0, 2.0]), panel("b", [1.0, 900.0])], "s", "y", "x")
    assert scales(canvases["l"])[1] == {"log"}
    plots.lines("m", "", [panel("a", [1.0, 2.0]), panel("b", [1.0, 3.0])], "s", "y", "x")
    assert scales(canvases["m"])[1] == {"linear"}
