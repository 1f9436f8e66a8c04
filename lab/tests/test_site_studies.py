"""The other studies over a site's clients, by the fake ssh: layouts, metadata of files, and servers that are lost."""

import json
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_site_fake import SITE, hosts, lab  # noqa: F401

from lab import config, site, site_file
from lab.process import Scratch, ToolError
from lab.records import load_run
from lab.remote import Address, Host
from lab.studies import KINDS
from lab.studies.base import Result

SETTINGS = """
[run]
scratch = "{tmp}/s"
[layouts]
size = "1M"
runtime = 1.0
ramp = 0.0
depth = 2
grid = [{{ op = ["randwrite"], bs = [4096], stripe_unit = [65536, 4194304], stripe_count = [1], threads = [2], hosts = [1, 2] }}]
[metadata]
runtime = 1.0
grid = [{{ files = [20], clients = [2] }}]
[failure]
size = "1M"
before = 0.3
outage = 1.0
after = 5.0
recover_limit = 20.0
rate = 200
"""


def run_of(tmp_path, study, *more):
    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path))
    done = lab("run", study, "--site", "site.toml", "--backends", "mount:1", "-c", "c.toml", "--rounds", "1", "--out", "run", *more, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "remote").iterdir()) == [] and list((tmp_path / "mounted").iterdir()) == [] and list((tmp_path / "s").iterdir()) == []
    return load_run(tmp_path / "run"), done


def raws(tmp_path, study):
    return [json.loads(json.loads(line)["output"]) for line in subprocess.run(["zcat", str(tmp_path / f"run/raw/{study}.jsonl.gz")], capture_output=True, check=True).stdout.splitlines()]


def test_files_are_laid_out_from_several_hosts_each_with_its_own(hosts, tmp_path):  # noqa: F811
    run, _ = run_of(tmp_path, "layouts", "--no-report")
    # A mounted directory has the plain layout alone.
    assert [(r.case["stripe_unit"], r.case["hosts"]) for r in run.by_host] == [(4 << 20, 1), (4 << 20, 2)]
    both = run.by_host[1]
    values = {s.metric: s.value for s in run.samples if s.case == both.case}
    assert both.hosts["d"]["bandwidth"] > 0 and both.hosts["d"]["bandwidth"] + both.hosts["e"]["bandwidth"] == pytest.approx(values["bandwidth"], rel=1e-3)
    jobs = {name: json.loads(out[out.index("{"):])["jobs"][0]["job options"] for name, out in raws(tmp_path, "layouts")[1]["fio"].items()}
    assert jobs["d"]["filename"] != jobs["e"]["filename"] and jobs["d"]["size"] == "1048576"


def test_a_site_s_layouts_are_counted_with_the_delays_of_its_file(hosts, tmp_path):  # noqa: F811
    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path))
    (tmp_path / "site.toml").write_text(SITE.format(tmp=tmp_path) + '[skep]\nhosts = ["a"]\n[delay]\nms = [0, 1, 5]\n')
    done = lab("run", "layouts", "metadata", "failure", "--site", "site.toml", "--backends", "mount:1,skep:1", "-c", "c.toml", "--dry-run", "-f", "json", cwd=tmp_path)
    rows = {(r["study"], r["backend"]): r["cases"] for r in json.loads(done.stdout)["rows"]}
    # Stripes are of Skep's images alone; files are not in images; a server of both is the lab's to strike.
    assert rows == {("layouts", "mount:1"): 6, ("layouts", "skep:1"): 12, ("metadata", "mount:1"): 1, ("metadata", "skep:1"): 0, ("failure", "mount:1"): 2, ("failure", "skep:1"): 2}


def test_only_studies_that_have_a_delay_ask_for_one(tmp_path):
    settings = config.load("quick")
    settings.layouts.grid = [{"bs": [4096], "delay": [0, 7]}]
    made = SimpleNamespace(delays=())
    assert site.Site(made, None, settings, studies=("failure", "matrix")).delays == set() and site.Site(made, None, settings, studies=("layouts",)).delays == {0, 7}
    assert site.Site(SimpleNamespace(delays=(3,)), None, settings, studies=("layouts", "metadata")).delays == {0, 7}
    assert site.Site(SimpleNamespace(delays=(3,)), None, settings, studies=("metadata",)).delays == set()
    assert site.Site(SimpleNamespace(delays=(3,)), None, settings, studies=("matrix",)).delays == {3}


def test_a_delay_without_servers_is_refused(hosts, tmp_path):  # noqa: F811
    text = SITE.format(tmp=tmp_path)
    text = text[: text.index("[[service]]")] + text[text.index("[mount]") :]
    (tmp_path / "site.toml").write_text(text.replace('"server"', '"client"'))
    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path).replace("threads = [2]", "threads = [2], delay = [0, 5]"))
    words = ("--site", "site.toml", "--backends", "mount:1", "-c", "c.toml", "--dry-run")
    refused = lab("run", "layouts", *words, cwd=tmp_path)
    assert refused.returncode == 2 and "has no host with the role server" in " ".join(refused.stderr.split())
    assert lab("run", "metadata", *words, cwd=tmp_path).returncode == 0


# --- metadata


def test_files_are_made_and_seen_from_several_hosts_at_once(hosts, tmp_path):  # noqa: F811
    run, _ = run_of(tmp_path, "metadata")
    assert [r.case["op"] for r in run.by_host] == ["create", "stat", "readdir", "rename", "unlink"]
    for one in run.by_host:
        values = {s.metric: s.value for s in run.samples if s.case == one.case}
        assert one.case["hosts"] == 2 and one.hosts["d"]["iops"] + one.hosts["e"]["iops"] == pytest.approx(values["iops"], rel=1e-3) and values["latency_p50"] > 0
        assert "server_user" in one.hosts["a"] and one.hosts["d"]["client_user"] + one.hosts["d"]["client_system"] > 0
    counts = [[json.loads(text)["operations"] for text in raw["load"].values()] for raw in raws(tmp_path, "metadata")]
    began = [json.loads(text)["began_ms"] for text in raws(tmp_path, "metadata")[0]["load"].values()]
    assert abs(began[0] - began[1]) < 500  # at one time, however long each host takes to begin
    assert counts[0] == counts[1] == counts[3] == counts[4] == [40, 40]  # 2 clients of 20 files on each host
    assert "| d |" in (tmp_path / "run/report.md").read_text()


def metadata(there):
    """The study with a site of so many clients, and the specs that it gave its hosts."""
    made, seen = object.__new__(KINDS["metadata"]), []
    made.config = config.load("quick")
    made.scratch = SimpleNamespace(run=lambda *a, **k: None)
    made.context = SimpleNamespace(site=SimpleNamespace(slow=lambda ms: None, send_generators=lambda: None, file=SimpleNamespace(clients=[None] * there)))

    def generator(backend, program, specs, limit):
        seen.append(specs)
        return Result({}, {}, ""), [SimpleNamespace(counts=[n + 1]) for n in range(len(specs))]

    made.site_generator = generator
    return made, seen


@pytest.mark.parametrize("there, whose", [(1, ["0"]), (3, ["1", "2", "0"])])
def test_a_look_goes_over_what_another_host_has_made(there, whose):
    study, seen = metadata(there)
    case = {"files": 3, "clients": 1, "flushed": "yes", "hosts": there}
    results = study._over_site(SimpleNamespace(directory=lambda: Path("/m")), case)
    create, stat, readdir, rename, unlink = seen
    assert [s["directory"].rpartition("/")[2] for s in create] == [str(n) for n in range(there)] == [s["directory"].rpartition("/")[2] for s in unlink]
    for op in (stat, readdir):
        assert [s["directory"].rpartition("/")[2] for s in op] == whose and [s["counts"] for s in op] == [[int(n) + 1] for n in whose]
    assert all(s["flush"] for s in (*create, *rename, *unlink)) and not any(s["flush"] for s in (*stat, *readdir))
    assert [r.case["op"] for r in results] == ["create", "stat", "readdir", "rename", "unlink"]


def test_a_client_without_python_is_named(hosts, tmp_path):  # noqa: F811
    file = site_file.read(tmp_path / "site.toml")
    with Scratch(tmp_path / "s") as scratch:
        made = site.Site(file, scratch, config.load("quick"))
        made.missing = lambda programs: [f"{p} is not installed on e" for p in programs]
        with pytest.raises(ToolError, match="load generators need Python: python3 is not installed on e"):
            made.send_generators()


# --- servers that are lost


def test_a_service_of_the_site_s_is_killed_or_hangs_and_serves_again(hosts, tmp_path):  # noqa: F811
    starts = tmp_path / "starts"
    text = SITE.format(tmp=tmp_path)
    head, tail = text[: text.index("command = ")], text[text.index("ready = ") :]
    (tmp_path / "site.toml").write_text(f"{head}command = \"sh -c 'echo $$ >>{starts}; echo serving; exec sleep 1000'\"\n{tail}")
    run, _ = run_of(tmp_path, "failure", "--no-report")
    values = {(s.case["fault"], s.metric): s.value for s in run.samples}
    assert {fault for fault, _ in values} == {"kill", "hang"} and values["kill", "errors"] == values["hang", "errors"] == 0
    assert values["kill", "stall"] > 0 and not values["kill", "stall_censored"]  # this storage does without the service
    assert len(starts.read_text().split()) == 2  # killed once
    for raw in raws(tmp_path, "failure"):
        assert raw["times"]["back"] - raw["times"]["struck"] == pytest.approx(1.0, abs=0.5) and raw["log"].count("\n") > 100


@pytest.fixture
def begun(hosts, tmp_path):  # noqa: F811
    """A site with one program that says its pid, and a child of it."""
    with Scratch(tmp_path / "s") as scratch:
        made = site.Site(site_file.read(tmp_path / "site.toml"), scratch, config.load("quick"))
        made.hosts = {"a": Host(Address("a", "a"), scratch)}
        made.hosts["a"].connect()
        made.clocks = {"a": site.Clock(100.0, 0.001)}  # as if it were ahead: what it says is put right, within what was seen here
        made.begin("it", "a", ["sh", "-c", "sleep 999 & echo pid $$; wait"], "server:mount", "pid", 20)
        yield made


def state(pid):
    try:
        found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return "gone" if found == "Z" else found
    except OSError:
        return "gone"


def test_a_signal_reaches_the_program_and_what_it_started_and_nothing_else(begun):
    pid = int(begun.sessions["it"].said().split()[1])
    child = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
    before = time.time()
    assert before <= begun.signal("it", "STOP") <= time.time() and state(pid) == state(child) == "T"
    begun.signal("it", "CONT")
    assert state(pid) == state(child) == "S" and begun.sessions["it"].process.poll() is None
    begun.signal("it", "KILL")
    begun.begin_again("it")
    again = int(begun.sessions["it"].said().split()[1])
    assert again != pid and state(pid) == state(child) == "gone" and begun.alive() == ""
    begun.finish("it")
    assert state(again) == "gone" and begun.sessions == {}


def test_a_program_that_has_ended_is_no_victim(begun):
    begun.signal("it", "KILL")
    begun.sessions["it"].process.wait(20)
    with pytest.raises(ToolError, match="it on a: no signal STOP reached it: it does not run there"):
        begun.signal("it", "STOP")


def test_only_what_the_lab_has_started_is_struck(tmp_path):
    (tmp_path / "site.toml").write_text(SITE.format(tmp=tmp_path) + '[skep]\nhosts = ["a"]\n[ceph]\nconf = "/etc/ceph/ceph.conf"\n[gluster]\nhosts = ["a"]\n')
    made = site_file.read(tmp_path / "site.toml")
    assert [site.victim(made, kind) for kind in ("skep", "mount", "ceph", "gluster")] == ["skep on a", "busy", "", ""]
    assert site.Planned(made).victim("skep") == "skep on a"
    (tmp_path / "site.toml").write_text('[[host]]\nname = "d"\nroles = ["client"]\n[skep]\nconf = "/c"\n')
    assert site.victim(site_file.read(tmp_path / "site.toml"), "skep") == ""


