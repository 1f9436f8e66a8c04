"""`lab compare`: new over old, of the same back end."""

from __future__ import annotations

import io
import json

from invented import Invention, boot
from lab.compare import compare, table
from rich.console import Console


def run_of(seed: int, names=("skep:1", "ceph:1"), rounds=8, faster=1.0):
    inv = Invention(["boot"], rounds, seed)
    boot(inv, list(names))
    run = inv.run
    run.id = f"run{seed}"
    for i, s in enumerate(run.samples):
        if s.backend == "skep:1" and s.metric == "boot_time":
            run.samples[i] = s.__class__(**{**s.__dict__, "value": s.value / faster})
    return run


def screen(found) -> str:
    out = io.StringIO()
    Console(file=out, width=220).print(table(found))
    return out.getvalue()


def test_what_got_faster_is_found_and_the_rest_is_not():
    found = json.loads(json.dumps(compare(run_of(1), run_of(2, faster=1.5)), allow_nan=False))
    row = next(r for r in found["rows"] if (r["backend"], r["metric"]) == ("skep:1", "boot_time"))
    assert row["gain"] == "better" and 0.6 < row["value"] < 0.75 and not row["paired"]
    other = next(r for r in found["rows"] if (r["backend"], r["metric"]) == ("ceph:1", "boot_time"))
    assert other["gain"] == "same"
    assert "better" in screen(found)


def test_what_only_one_run_has_and_what_changed_is_said():
    old, new = run_of(1), run_of(2, names=("skep:1",))
    new.environments[0].tools["fio"] = "fio-3.40"
    old.options["config"], new.options["config"] = {"matrix": {"size": 1, "same": 2}}, {"matrix": {"size": 3, "same": 2}}
    found = compare(old, new)
    assert found["only"] == ["boot: ceph:1 is in run1 only"]
    assert {"what": "tool fio", "old": "fio-3.33", "new": "fio-3.40"} in found["changed"]
    # A setting at a time, however deep, and only those that changed.
    assert [c for c in found["changed"] if "config" in c["what"]] == [{"what": "option config.matrix.size", "old": "1", "new": "3"}]
    assert "fio-3.33 -> fio-3.40" in screen(found)


def test_few_rounds_give_no_verdict():
    found = compare(run_of(1, rounds=3), run_of(2, rounds=3, faster=3))
    assert {r["gain"] for r in found["rows"]} == {"undecided"}
    assert "too few to say" in screen(found)
