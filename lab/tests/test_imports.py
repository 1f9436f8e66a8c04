"""fio's JSON from elsewhere becomes a run, or one sentence why not."""

import copy
import json
from pathlib import Path

import pytest

from lab import imports, report_data
from lab.records import RecordError, load_curves, load_run
from lab.report_data import Wishes

DATA = Path(__file__).parent / "data"


@pytest.fixture
def made(tmp_path):
    """A file out of a recorded document, changed."""

    def make(name, change=lambda document: None, source="fio-randwrite.json"):
        document = json.loads((DATA / source).read_text())
        change(document)
        (tmp_path / name).write_text(json.dumps(document))
        return str(tmp_path / name)

    return make


def options(**more):
    def change(document):
        document["jobs"][0]["job options"] |= {k: str(v) for k, v in more.items()}

    return change


def test_files_become_rounds_of_their_case(made, tmp_path):
    files = [made(f"{n}.json", options(bs="4k", rw="randwrite", iodepth=8)) for n in range(6)]
    other = made("read.json", options(bs="64k", rw="read", iodepth=2))
    found = imports.backends([f"ceph:3={','.join(files)}", f"ceph:3={other}", f"file={files[0]}"], ["flushed", "file:1=sent"])
    run = load_run(imports.write(found, tmp_path / "run"))
    cases = {(s.backend, s.round, tuple(sorted(s.case.items()))) for s in run.samples}
    assert len(cases) == 8
    assert {s.round for s in run.samples if s.backend == "ceph:3" and s.case["bs"] == 4096} == set(range(6))
    assert {tuple(s.case.items()) for s in run.samples if s.case["bs"] == 65536} == {(("bs", 65536), ("read", 100), ("depth", 2), ("op", "read"), ("clients", 1))}
    assert run.end_state == "complete" and "not known here" in run.environment.notes[0]
    view = report_data.views(run, Wishes())[0]
    assert {b.name: b.acknowledged for b in view.backends} == {"ceph:3": "flushed", "file:1": "sent"}


def test_bins_are_kept_as_curves(made, tmp_path):
    def bins(document):
        side = document["jobs"][0]["write"]
        side["clat_ns"]["bins"] = {"1000": side["total_ios"] - 1, "5000": 1}

    run = load_run(imports.write(imports.backends([f"x:1={made('a.json', bins)}"], []), tmp_path / "run"))
    kept = load_curves(run, "matrix")
    assert [us for us, _ in kept[0].curves.distribution["write"]] == [1.0, 5.0] and kept[0].curves.course == []


def test_writes_are_not_judged_where_nobody_says_when_they_are_answered(made, tmp_path):
    file = made("a.json")
    for said, unlike in (([], "nobody has said"), (["flushed"], "")):
        run = load_run(imports.write(imports.backends([f"x:1={file}", f"y:1={file}"], said), tmp_path / f"run{len(said)}"))
        reasons = {c.unlike for c in report_data.views(run)[0].compared if c.metric == "iops"}
        assert len(reasons) == 1 and unlike in reasons.pop()


def doubled(document):
    document["jobs"].append(copy.deepcopy(document["jobs"][0]))


def test_jobs_are_clients(made, tmp_path):
    def apart(document):
        for job in document["jobs"]:
            job["job options"].pop("group_reporting", None)

    def two(document):
        doubled(document)
        apart(document)

    def grouped(document):
        side = document["jobs"][0]["write"]
        document["jobs"][0]["job options"]["group_reporting"] = "1"
        document["jobs"][0]["job_runtime"] = side["runtime"] * 4 + 3

    assert imports.case_of(json.loads(Path(made("a.json", two)).read_text()))["clients"] == 2
    assert imports.case_of(json.loads(Path(made("b.json", grouped)).read_text()))["clients"] == 4


def other_block(document):
    doubled(document)
    document["jobs"][1]["job options"]["bs"] = "8k"


@pytest.mark.parametrize(
    "change, said",
    [
        (other_block, r"a\.json: 2 kinds of work in one file"),
        (options(rw="trim"), r"a\.json: rw=trim is none of"),
        (options(bs="4k,8k"), r"a\.json: bs=4k,8k is no single block size"),
        (options(bssplit="4k/50:8k/50"), r"a\.json: several block sizes"),
        (lambda d: d["jobs"][0].update(error=5), r"a\.json: job .* ended with error 5"),
        (lambda d: d["jobs"][0].pop("write"), r"a\.json: not fio's JSON"),
        (lambda d: d.update(jobs=[]), r"a\.json: fio's JSON has no jobs"),
    ],
)
def test_what_fits_no_case_is_refused_by_name_and_nothing_is_written(made, tmp_path, change, said):
    good, bad = made("good.json"), made("a.json", change)
    with pytest.raises(RecordError, match=said):
        imports.write(imports.backends([f"x:1={good},{bad}"], []), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "arguments, acknowledged, said",
    [
        (["x"], [], "is not NAME:COPIES=FILE"),
        (["../x:1=a"], [], "is not NAME:COPIES=FILE"),
        (["x:1=a"], ["soon"], "--acknowledged soon: flushed, sent, cached"),
        (["x:1=a"], ["y:1=sent"], "of a back end that is imported"),
    ],
)
def test_bad_arguments(arguments, acknowledged, said):
    with pytest.raises(RecordError, match=said):
        imports.backends(arguments, acknowledged)


def test_a_missing_file_and_a_run_that_is_there(made, tmp_path):
    with pytest.raises(RecordError, match="No such file"):
        imports.write(imports.backends(["x:1=nowhere.json"], []), tmp_path / "run")
    file = made("a.json")
    imports.write(imports.backends([f"x:1={file}"], []), tmp_path / "run")
    with pytest.raises(RecordError, match="has a run already"):
        imports.write(imports.backends([f"x:1={file}"], []), tmp_path / "run")
