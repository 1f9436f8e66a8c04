"""The run file: written, read back, cut anywhere, resumed."""

import json

import pytest

from lab.records import (
    FACTORS,
    METRICS,
    STUDIES,
    BackendState,
    Environment,
    RecordError,
    RunWriter,
    Sample,
    load_run,
)


def sample(round=0, value=1.5, **more):
    return Sample("matrix", "file:1", {"bs": 4096}, "iops", value, "1/s", round, "2026-01-01T00:00:00Z", **more)


@pytest.fixture
def run_dir(tmp_path):
    with RunWriter(tmp_path / "r") as w:
        w.head("r", "2026-01-01T00:00:00Z", ["matrix"], {"quick": True})
        w.environment(Environment(kernel="6.1", tools={"fio": "3.33"}))
        w.backend(BackendState("file:1", "matrix", "ready"))
        w.samples([sample()])
        w.samples([sample(1)])
        w.samples([sample(2, None, ok=False, error="fio: exit 1")])
        w.backend(BackendState("file:1", "matrix", "failed", "fio: exit 1"))
        w.end("2026-01-01T00:01:00Z", "partial", "file:1 failed")
    return tmp_path / "r"


def test_a_run_comes_back_as_it_was_written(run_dir):
    run = load_run(run_dir)
    assert (run.id, run.studies, run.end_state, run.end_reason) == ("r", ["matrix"], "partial", "file:1 failed")
    assert run.samples == [sample(), sample(1), sample(2, None, ok=False, error="fio: exit 1")]
    assert run.last_states()[("matrix", "file:1")].state == "failed"
    assert run.environment.tools == {"fio": "3.33"}


def test_a_file_cut_anywhere_loads_with_its_whole_lines(run_dir):
    file = run_dir / "run.jsonl"
    whole = file.read_bytes()
    head = whole.index(b"\n") + 1
    for cut in range(head, len(whole)):
        file.write_bytes(whole[:cut])
        run = load_run(run_dir)
        lines = whole[:cut].count(b'{"type":"result"')
        assert len(run.samples) in (lines, lines - 1)
        assert run.end_state in ("interrupted", "partial")


def test_a_cut_line_goes_when_the_run_is_resumed(run_dir):
    file = run_dir / "run.jsonl"
    file.write_bytes(file.read_bytes()[:-10])
    with RunWriter(run_dir) as w:
        w.resume("2026-01-02T00:00:00Z")
        w.samples([sample(3)])
    assert [s.round for s in load_run(run_dir).samples] == [0, 1, 2, 3]
    for line in file.read_text().splitlines():
        json.loads(line)


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "empty"),
        ("{}\n", "head"),
        ("[]\n", "not a JSON object"),
        ('{"type":"run","version":9,"id":"x","started":"","studies":[]}\n', "version 9"),
        ('{"type":"run","version":1,"id":"x","started":"","studies":[]}\nnonsense\n{}\n', ":2"),
        ('{"type":"run","version":1,"id":"x","started":"","studies":[]}\n{"type":"result"}\n', ":2"),
    ],
)
def test_what_is_no_run_is_refused_with_its_place(tmp_path, text, said):
    (tmp_path / "run.jsonl").write_text(text)
    with pytest.raises(RecordError, match=said):
        load_run(tmp_path)


def test_tables_are_consistent():
    for study in STUDIES.values():
        assert all(m in METRICS for m in study.headline)
        assert all(f in FACTORS for f in (*study.panels, *([study.x] if study.x else [])))
    assert all(m.better in ("higher", "lower", "") for m in METRICS.values())
