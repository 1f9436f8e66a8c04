"""The runner with back ends and a study of the test's own: interleaving, resumption, back ends that die, interruption."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from lab import process, runner
from lab.backends import Backend, Disk
from lab.backends.base import ToolError
from lab.config import Config
from lab.live import View
from lab.records import RunWriter, load_run
from lab.runner import Options, Runner
from lab.studies.base import Result, Study


class Fake(Backend):
    """A back end with a real server process, so that it can really die."""

    title = "fake"
    dies_at = None  # measurement number
    unfit: list = []

    @classmethod
    def missing(cls, config):
        return cls.unfit

    def start(self):
        self.server = self.scratch.spawn(["sleep", "100"], f"server:{self.kind}")

    def server_pids(self):
        return [self.server.pid]

    def alive(self):
        return "" if self.server.poll() is None else f"{self.kind}: the server ended with status {self.server.returncode}"

    def create(self, disk: Disk): ...
    def remove(self, disk: Disk): ...
    def fio(self, disk: Disk): return []
    def protocol(self, disk: Disk): return {}
    def location(self, disk: Disk): return ""
    def clone(self, base: Disk, disk: Disk): ...


class A(Fake):
    kind = "a"


class B(Fake):
    kind = "b"


class Echo(Study):
    name = "matrix"
    log: list = []
    fail: set = set()

    def cases(self, backend):
        return [{"bs": 1}, {"bs": 2}]

    def measure(self, backend, case, round):
        self.log.append((round, case["bs"], backend.kind))
        if backend.dies_at == sum(1 for x in self.log if x[2] == backend.kind):
            os.kill(backend.server.pid, signal.SIGKILL)
            backend.server.wait()
            raise ToolError("connection lost")
        if (round, case["bs"], backend.kind) in self.fail:
            raise ToolError("a bad moment")
        return [Result(case, {"iops": 10.0 * (round + 1)}, raw="said\n")]


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "KINDS", {"matrix": Echo})
    monkeypatch.setattr(runner, "parse", lambda name: ({"a": A, "b": B}[name[0]], 1))
    monkeypatch.setattr(runner, "isolate", lambda *_: "")
    monkeypatch.setattr(Echo, "log", [])
    monkeypatch.setattr(Echo, "fail", set())
    for kind in (A, B):
        monkeypatch.setattr(kind, "dies_at", None)
        monkeypatch.setattr(kind, "unfit", [])

    def run(earlier=None, rounds=3, **options):
        config = Config()
        config.run.rounds, config.run.scratch = rounds, str(tmp_path / "scratch")
        with RunWriter(tmp_path / "run") as writer:
            if earlier is None:
                writer.head("run", "t", ["matrix"], {})
            else:
                writer.resume("t")
            view = View(Console(file=open(os.devnull, "w")))
            work = Runner(config, Options(["matrix"], ["a:1", "b:1"], **options), writer, view, earlier)
            try:
                state, reason = work.run()
            except runner.Stopped as e:
                state, reason = "interrupted", str(e)
            writer.end("t", state, reason)
        assert list((tmp_path / "scratch").iterdir()) == []
        return load_run(tmp_path / "run")

    return run


def test_back_ends_are_interleaved_and_take_turns_to_begin(lab):
    run = lab(rounds=2)
    assert Echo.log == [(0, 1, "a"), (0, 1, "b"), (0, 2, "a"), (0, 2, "b"), (1, 1, "b"), (1, 1, "a"), (1, 2, "b"), (1, 2, "a")]
    assert run.end_state == "complete" and len(run.samples) == 8
    assert {s.state for s in run.last_states().values()} == {"done"}


def test_a_back_end_that_is_killed_in_mid_run_leaves_a_partial_run_that_says_so(lab, monkeypatch):
    monkeypatch.setattr(B, "dies_at", 3)
    run = lab()
    state = run.last_states()[("matrix", "b:1")]
    assert state.state == "failed" and "status -9" in state.reason and "round 2" in state.reason
    assert run.end_state == "partial" and "b:1" in run.end_reason
    good = [s for s in run.samples if s.ok]
    assert [s.backend for s in good].count("a:1") == 6 and [s.backend for s in good].count("b:1") == 2
    bad = [s for s in run.samples if not s.ok]
    assert [(s.backend, s.value, s.error) for s in bad] == [("b:1", None, "connection lost")]


def test_what_stays_on_a_cluster_is_said_and_the_run_ends_with_its_report(lab, monkeypatch, tmp_path):
    def refused(self):
        raise ToolError("ceph osd pool rm: status 1: pool deletion is disabled")

    monkeypatch.setattr(A, "close", refused)
    monkeypatch.setattr(B, "close", lambda self: "pool lab-x-3 on the cluster of c could not be removed: refused.")
    run = lab()
    assert run.end_state == "partial" and len([s for s in run.samples if s.ok]) == 12
    assert "a:1 could not be put away: ceph osd pool rm" in run.end_reason and "pool lab-x-3 on the cluster" in run.end_reason
    from lab import report

    report.write(run, tmp_path / "report")
    assert "pool lab-x-3 on the cluster of c could not be removed" in (tmp_path / "report" / "report.md").read_text()


def test_the_report_of_such_a_run_names_the_back_end_and_the_reason(lab, monkeypatch, tmp_path):
    reporting = pytest.importorskip("lab.report")
    monkeypatch.setattr(B, "dies_at", 3)
    lab()
    written = reporting.write(load_run(tmp_path / "run"), tmp_path / "report")
    pages = [path for path in written if path.suffix in (".html", ".md")]
    assert {path.name for path in pages} == {"report.html", "report.md", "headline.html"}
    for page in pages:
        text = page.read_text()
        assert "b:1" in text and "status -9" in text, page


def test_one_failed_measurement_does_not_end_a_back_end(lab):
    Echo.fail = {(0, 1, "b")}
    run = lab()
    assert run.last_states()[("matrix", "b:1")].state == "done"
    assert run.end_state == "partial" and "a bad moment" in run.end_reason
    assert len([s for s in run.samples if s.backend == "b:1" and s.ok]) == 5


def test_failures_in_a_row_end_a_back_end(lab):
    Echo.fail = {(r, bs, "b") for r in range(3) for bs in (1, 2)}
    run = lab()
    state = run.last_states()[("matrix", "b:1")]
    assert state.state == "failed" and "2 measurements in a row" in state.reason
    assert len([s for s in run.samples if s.backend == "a:1" and s.ok]) == 6


def test_what_cannot_run_here_is_skipped_and_said(lab, monkeypatch):
    monkeypatch.setattr(B, "unfit", ["bd is not installed (Debian: b)"])
    run = lab()
    state = run.last_states()[("matrix", "b:1")]
    assert (state.state, state.reason) == ("skipped", "bd is not installed (Debian: b)")
    assert run.end_state == "partial" and all(s.backend == "a:1" for s in run.samples)


def test_a_resumption_measures_only_what_is_missing(lab, tmp_path, monkeypatch):
    monkeypatch.setattr(B, "dies_at", 3)
    earlier = lab()
    monkeypatch.setattr(B, "dies_at", None)
    Echo.log.clear()
    run = lab(earlier=earlier)
    assert Echo.log == [(1, 1, "b"), (1, 2, "b"), (2, 1, "b"), (2, 2, "b")]
    assert run.end_state == "complete"
    good = {(s.backend, s.round, s.case["bs"]) for s in run.samples if s.ok}
    assert len(good) == 12
    assert len({s.raw for s in run.samples if s.ok}) == 12


def test_a_run_with_a_time_limit_stops_and_can_be_resumed(lab):
    earlier = lab(stop_after=1e-9)
    assert earlier.end_state == "interrupted" and not earlier.samples
    assert len(lab(earlier=earlier).samples) == 12


def test_a_turn_s_lock_is_held_while_measuring_and_given_back(lab, tmp_path, monkeypatch):
    import fcntl

    path = tmp_path / "lock"
    seen = []
    plain = Echo.measure

    def measure(self, *args):
        with open(path, "a") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                seen.append("free")
            except OSError:
                seen.append("held")
        return plain(self, *args)

    monkeypatch.setattr(Echo, "measure", measure)
    lab(locks=[path])
    assert seen == ["held"] * 12
    with open(path, "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)


# --- processes


def test_daemons_that_fork_away_are_found_and_ended(tmp_path):
    with process.Scratch(tmp_path) as scratch:
        scratch.run(["sh", "-c", "setsid sleep 100 >/dev/null 2>&1 & setsid sh -c 'exec sleep 100' >/dev/null 2>&1 &"], role="server:x")
        deadline = time.monotonic() + 10
        while len(found := process.marked(scratch.mark, "server:x")) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(found) == 2 and process.marked(scratch.mark, "server:y") == []
        assert process.marked(scratch.mark, "server:") == found
    assert not any(process.start_time(pid) and not process.is_zombie(pid) for pid in found)
    assert list(tmp_path.iterdir()) == []


def test_a_program_beyond_its_time_is_killed_with_its_children(tmp_path):
    with process.Scratch(tmp_path) as scratch:
        with pytest.raises(ToolError, match="no end within"):
            scratch.run(["sh", "-c", "sleep 50 & sleep 50"], timeout=0.2)
        time.sleep(0.05)
        assert [p for p in process.marked(scratch.mark) if not process.is_zombie(p)] == []


def test_a_tool_s_failure_has_its_last_words(tmp_path):
    with process.Scratch(tmp_path) as scratch:
        with pytest.raises(ToolError, match="status 3: it is broken"):
            scratch.run(["sh", "-c", "echo it is broken >&2; exit 3"])
        with pytest.raises(ToolError, match="no such program"):
            scratch.run(["no-such-program-at-all"])


KILLED = """
import sys, time
from pathlib import Path
from lab.process import Scratch
scratch = Scratch(Path(sys.argv[1]))
scratch.run(["sh", "-c", "setsid sleep 100 >/dev/null 2>&1 &"], role="server:x")
print(scratch.path, scratch.mark, flush=True)
time.sleep(100)
"""


def start_to_be_killed(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    path, mark = child.stdout.readline().split()
    # What has just forked away may be in the middle of its exec, where its environment reads as empty.
    deadline = time.monotonic() + 10
    while not process.marked(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.marked(mark)
    return child, Path(path), mark


def gone(path, mark, limit=10):
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if not path.exists() and not [p for p in process.marked(mark) if not process.is_zombie(p)]:
            return True
        time.sleep(0.05)
    return False


def test_a_lab_that_is_killed_leaves_nothing_behind(tmp_path):
    child, path, mark = start_to_be_killed(tmp_path)
    child.kill()
    child.wait()
    assert gone(path, mark)


def test_clean_finds_what_a_lab_left_whose_reaper_was_killed_too(tmp_path):
    child, path, mark = start_to_be_killed(tmp_path)
    assert process.abandoned(tmp_path) == []
    reaper = next(int(p) for p in os.listdir("/proc") if p.isdigit() and is_reaper(p, path))
    os.kill(reaper, signal.SIGKILL)
    child.kill()
    child.wait()
    assert process.abandoned(tmp_path) == [(path, mark)]
    process.sweep(*process.abandoned(tmp_path)[0])
    assert gone(path, mark, 1)


def is_reaper(pid, path):
    try:
        return f"lab.reaper\0{path}" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def test_raw_outputs_can_be_read_back(lab, tmp_path):
    import gzip

    run = lab(rounds=1)
    lines = [json.loads(line) for line in gzip.open(tmp_path / "run" / "raw" / "matrix.jsonl.gz", "rt")]
    assert [line["output"] for line in lines] == ["said\n"] * 4
    assert [s.raw for s in run.samples] == [f"raw/matrix.jsonl.gz#{line['n']}" for line in lines]
