"""Sites by a fake ssh that runs everything here: what a host lacks, what each host did, hosts that vanish, what is found and put away."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import fake_ssh
import pytest
from machines import wait_until

from lab import account, ledger, report, site, site_clean, site_file, site_load, site_meter, site_probe

from lab.plan_toml import PlanError
from lab.process import Scratch, ToolError, run_plainly
from lab.records import load_run
from lab.remote import PARALLEL, SESSIONS_MAX, Address, Host, each, every

SITE = """
[ssh]
directory = "{tmp}/remote"
[[host]]
name = "a"
roles = ["server"]
[[host]]
name = "d"
roles = ["client"]
[[host]]
name = "e"
roles = ["client"]
[[service]]
name = "busy"
backend = "mount"
host = "a"
command = "sh -c 'echo serving; while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep 0.05; done'"
ready = "serving"
[mount]
path = "{tmp}/mounted"
acknowledged = "sent"
"""
SETTINGS = """
[run]
scratch = "{tmp}/s"
[matrix]
size = "1M"
runtime = {runtime}
ramp = 0.0
grid = [{{ bs = [4096], read = [50], depth = [2], clients = [1] }}]
"""


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    """The directory of hosts that are not there; all others are this machine."""
    for name in ("remote", "mounted", "s"):
        (tmp_path / name).mkdir()
    (tmp_path / "site.toml").write_text(SITE.format(tmp=tmp_path))
    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path, runtime=1.0))
    return fake_ssh.install(tmp_path, monkeypatch)


def lab(*args, cwd, **more):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", "from lab.cli import main; main()", *args]
    if more:
        return subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, text=True, **more)
    return subprocess.run(argv, capture_output=True, text=True, cwd=cwd, env=env, timeout=300, stdin=subprocess.DEVNULL)


RUN = ("run", "matrix", "--site", "site.toml", "--backends", "mount:1", "-c", "c.toml", "--rounds", "1", "--out", "run")


def guarded(mark):
    """Processes on `hosts` of a run."""
    found = []
    for p in (p for p in os.listdir("/proc") if p.isdigit()):
        try:
            words = Path(f"/proc/{p}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"LAB_MARK={mark}".encode() in words and any(w.startswith(b"LAB_GUARD=") for w in words):
            found.append(int(p))
    return found


# --- what each host did


def test_each_host_is_told_apart_in_the_raw_data_and_the_report(hosts, tmp_path):
    done = lab(*RUN, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    run = load_run(tmp_path / "run")
    (one,) = run.by_host
    values = {s.metric: s.value for s in run.samples}
    assert set(one.hosts) == {"a", "d", "e"}
    assert one.hosts["d"]["iops"] + one.hosts["e"]["iops"] == pytest.approx(values["iops"], rel=1e-3)
    assert "iops" not in one.hosts["a"] and one.hosts["a"]["server_user"] > 0 and "server_user" not in one.hosts["d"]
    clients = sum(one.hosts[h]["client_user"] + one.hosts[h]["client_system"] for h in "de")
    assert clients == pytest.approx(values["client_cores"], rel=1e-3) and clients > 0
    raw = json.loads(json.loads(subprocess.run(["zcat", str(tmp_path / "run/raw/matrix.jsonl.gz")], capture_output=True, check=True).stdout)["output"])
    assert set(raw["fio"]) == {"d", "e"} and {p["role"] for p in raw["processes"]["a"]} == {"server"} and raw["processes"]["d"][-1]["name"] == "fio"
    assert "Each host" in (tmp_path / "run/report.html").read_text() and "| a |" in (tmp_path / "run/report.md").read_text()
    assert report.summary(run)["studies"][0]["by_host"][0]["hosts"]["d"]["iops"] > 0
    assert any("its clock is" in n for n in run.environment.notes)
    assert list((tmp_path / "remote").iterdir()) == [] and list((tmp_path / "mounted").iterdir()) == [] and list((tmp_path / "s").iterdir()) == []


STAT = "{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {user} {system} 0 0 20 0 1 0 0 0 0"


def looks(*lines):
    return [line for part in lines for line in part.strip().splitlines()]


def test_a_look_counts_disks_once_and_takes_any_name_of_a_process():
    look = site_meter.parse(looks(
        "stat " + STAT.format(pid=7, name="a (b) c", user=200, system=100),
        "io 7 rchar: 1\nio 7 write_bytes: 5000\nio 7 cancelled_write_bytes: 1000",
        "host cpu  1 2 3 4 5 6 7 8 9 10",
        "net     lo: 9 0 0 0 0 0 0 0 9 0 0 0 0 0 0 0\nnet   eth0: 100 0 0 0 0 0 0 0 200 0 0 0 0 0 0 0\nnet eth1:1 0 0 0 0 0 0 0 2 0",
        "disk 8 0 sda 1 0 10 0 1 0 20 0\ndisk 8 1 sda1 1 0 10 0 1 0 20 0\ndisk 259 0 nvme0n1 0 0 1 0 0 0 1 0\ndisk 259 1 nvme0n1p1 0 0 1 0 0 0 1 0\n"
        "disk 253 0 dm-0 0 0 99 0 0 0 99 0\ndisk 7 0 loop0 0 0 99 0 0 0 99 0"), 1.0)  # fmt: skip
    assert look.names == {7: "a (b) c"} and look.cpu == {7: (200 / account.TICK, 100 / account.TICK)} and look.written == {7: 4000}
    assert (look.net_in, look.net_out) == (101, 202) and (look.disk_read, look.disk_written) == (11 * 512, 21 * 512)
    assert look.host["softirq"] == 7 / account.TICK


def look(at, user, pids=(7,), written=None):
    made = site_meter.Look(at, {p: (user, 0.0) for p in pids}, {p: "s" for p in pids}, {p: written for p in pids} if written is not None else {})
    made.net_out = int(1000 * at)
    return made


def watched(*seen, servers=(7,), behind=0.0):
    made = object.__new__(site_meter._Watched)
    made.looks, made.servers, made.behind = list(seen), set(servers), behind
    return made


def test_only_the_time_that_is_asked_for_counts_by_straight_lines_between_looks():
    w = watched(look(0, 0.0, written=0), look(1, 1.0, written=100), look(2, 1.0, written=100))
    assert w.between(0.5, 1.0).values["server_user"] == pytest.approx(1.0) and w.between(1.0, 2.0).values["server_user"] == 0
    assert w.between(0.0, 2.0).values["server_written"] == 50 and w.between(0.25, 1.5).values["net_out"] == pytest.approx(1000, rel=0.01)
    assert w.between(5.0, 6.0) is None
    late = watched(look(0, 0.0), look(1, 1.0), look(2, 1.0), behind=100.0)
    assert late.between(100.0, 101.0).values["server_user"] == pytest.approx(1.0) and late.between(0.0, 2.0) is None


def test_a_process_that_ended_leaves_no_figure_and_one_without_bytes_only_those_missing():
    assert watched(look(0, 0.0, (7, 8)), look(1, 1.0, (7,))).between(0, 1) is None
    values = watched(look(0, 0.0), look(1, 1.0)).between(0, 1).values
    assert values["server_user"] == 1.0 and "server_written" not in values
    assert "client_user" in watched(look(0, 0.0), look(1, 1.0), servers=()).between(0, 1).values


def fio_document(stamp_ms, runtime_ms=2000):
    side = {"total_ios": 10, "iops": 5.0, "bw_bytes": 50, "io_bytes": 100, "runtime": runtime_ms, "clat_ns": {"mean": 1000.0, "max": 2000}}
    none = {"total_ios": 0, "io_bytes": 0, "runtime": 0, "iops": 0, "bw_bytes": 0, "clat_ns": {}}
    return {"timestamp_ms": stamp_ms, "jobs": [{"jobname": "x", "error": 0, "read": none, "write": side}]}


def test_a_client_s_figures_are_placed_by_its_clock_as_compared(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: 50.0)
    out = json.dumps(fio_document(1_099_000)) + "\nword 30 20 10.0 12.5\n1, 2, 0\n"  # its clock is 100 s ahead; 1 s ago it ended
    load = site_load.parse_load("d", out, "word")
    assert (load.user_s, load.elapsed, load.course) == (30 / account.TICK, 2.5, "1, 2, 0")
    assert load.window(site.Clock(100.0, 0.001), 40.0, 50.0) == (47.0, 49.0)
    assert load.window(site.Clock(0.0, 0.001), 40.0, 50.0) == (48.0, 50.0)  # it was set meanwhile: the end that was seen
    assert load.window(site.Clock(100.0, 9.0), 40.0, 50.0) == (48.0, 50.0)


def test_clocks_are_compared_and_a_wrong_one_is_told(hosts, tmp_path, monkeypatch):
    with Scratch(tmp_path / "s") as scratch:
        host = Host(Address("d", "d"), scratch)
        host.connect()
        found = site.clock(host)
        assert abs(found.ahead) <= found.error
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() - 60)
        assert abs(site.clock(host).ahead - 60) < 5
    left = site_probe.Found(site_file.SiteHost(Address("d", "d"), ("client",), "d"), [], site.Clock(60.0, 0.1))
    assert site_probe.told(left) == ["its clock is 60.0 s ahead of this machine's"]


def test_a_run_over_hosts_that_was_stopped_goes_on(hosts, tmp_path):
    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path, runtime=1.0).replace("read = [50]", "read = [0, 100]"))
    assert lab(*RUN, "--stop-after", "1", "--no-report", cwd=tmp_path).returncode == 3
    assert list((tmp_path / "remote").iterdir()) == [] and list((tmp_path / "mounted").iterdir()) == []
    done = lab("run", "--resume", "run", "--no-report", cwd=tmp_path)
    run = load_run(tmp_path / "run")
    assert done.returncode == 0 and {s.case["read"] for s in run.samples if s.ok} == {0, 100} and len(run.by_host) == 2, done.stdout + done.stderr


# --- bounds of the transport


def test_hosts_are_asked_side_by_side_within_a_bound_and_all_errors_are_told():
    now, most, lock = 0, 0, threading.Lock()

    def one(n):
        nonlocal now, most
        with lock:
            now, most = now + 1, max(most, now + 1)
        time.sleep(0.02)
        with lock:
            now -= 1
        if n % 20 == 19:
            raise ToolError(f"no {n}")
        return n

    found = each(range(60), one)
    assert 1 < most <= PARALLEL and [str(f) for f in found[18:20]] == ["18", "no 19"]
    with pytest.raises(ToolError, match="no 19; no 39; no 59"):
        every(range(60), one)


def test_one_connection_carries_no_more_programs_than_sshd_allows(hosts, tmp_path):
    with Scratch(tmp_path / "s") as scratch:
        host = Host(Address("d", "d"), scratch)
        host.connect()
        running = [host.start(["sleep", "100"], "server:x", tmp_path / f"{n}.log") for n in range(SESSIONS_MAX)]
        with pytest.raises(ToolError, match=f"host d: {SESSIONS_MAX} programs run there already"):
            host.start(["sleep", "100"], "server:x", tmp_path / "more.log")
        running[0].close()
        assert host.run(["echo", "it's $HOME; `id`"]).out == "it's $HOME; `id`\n"


def test_ssh_asks_for_nothing_and_checks_keys_unless_the_site_says_how():
    plain, own = Address("d", "d").ssh(), Address("d", "d", options=("StrictHostKeyChecking=accept-new",)).ssh()
    assert plain.index("BatchMode=yes") < plain.index("StrictHostKeyChecking=yes") and plain[-1] == "d"
    assert own.index("StrictHostKeyChecking=accept-new") < own.index("StrictHostKeyChecking=yes")


def test_what_a_guard_runs_after_runs_also_when_the_program_was_killed(hosts, tmp_path):
    with Scratch(tmp_path / "s") as scratch:
        host = Host(Address("d", "d"), scratch)
        host.connect()
        session = host.start(["sh", "-c", "echo $$; exec sleep 100"], "server:x", tmp_path / "log", after=f"echo gone >{tmp_path}/after")
        session.wait_for("\n", 60, "it")
        os.kill(int(session.said()), signal.SIGKILL)
        wait_until(lambda: (tmp_path / "after").exists())


def test_a_file_s_content_is_in_no_command_line(hosts, tmp_path, monkeypatch):
    with Scratch(tmp_path / "s") as scratch:
        host = Host(Address("d", "d"), scratch)
        host.connect()
        run, seen = scratch.run, []
        monkeypatch.setattr(scratch, "run", lambda argv, *a, **k: (seen.append(argv), run(argv, *a, **k))[1])
        host.put(f"{tmp_path}/remote/it's", b"secret\n")
        assert len(seen) == 1 and "secret" not in " ".join(seen[0])
        kept = tmp_path / "remote" / "it's"
        assert kept.read_bytes() == b"secret\n" and kept.stat().st_mode & 0o777 == 0o600


# --- hosts that vanish


@pytest.mark.parametrize("whom", ["d", "a"])
def test_a_host_that_vanishes_in_mid_run_ends_it_with_a_report_that_says_so(hosts, tmp_path, whom):
    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path, runtime=3.0).replace("read = [50]", "read = [0, 50, 100]"))
    running = lab(*RUN, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: (tmp_path / "run/run.jsonl").exists() and '"result"' in (tmp_path / "run/run.jsonl").read_text())
        mark = next((tmp_path / "remote").glob("lab-*")).name.removeprefix("lab-")
        (hosts / whom).write_text("cut")
        said, _ = running.communicate(timeout=240)
    finally:
        running.kill()
    run = load_run(tmp_path / "run")
    assert running.returncode == 1 and f"host {whom} ({whom}): the connection ended: Timeout, server {whom} not responding" in run.end_reason, said
    assert (tmp_path / "run/report.html").exists() and any(s.ok for s in run.samples) and "Traceback" not in said
    wait_until(lambda: not guarded(mark))
    # All hosts are this machine here, so the others took away what was whom's; a real one keeps it until it is asked again.
    assert f"on host {whom} could not be removed" in run.end_reason and ledger.abandoned_hosts(tmp_path / "s")
    done = lab("clean", "--scratch", str(tmp_path / "s"), cwd=tmp_path)
    assert done.returncode == 1 and "could not be removed" in done.stdout
    (hosts / whom).unlink()
    assert lab("clean", "--scratch", str(tmp_path / "s"), cwd=tmp_path).returncode == 0 and not ledger.abandoned_hosts(tmp_path / "s")


def test_hosts_that_are_not_there_are_all_named_before_anything_starts(hosts, tmp_path):
    (hosts / "a").write_text("cut")
    (hosts / "e").write_text("cut")
    done = lab(*RUN, cwd=tmp_path)
    reason = load_run(tmp_path / "run").end_reason
    assert done.returncode == 1 and "host a (a): ssh: connect" in reason and "host e (e): ssh: connect" in reason
    assert list((tmp_path / "remote").iterdir()) == [] and list((tmp_path / "mounted").iterdir()) == []


# --- what hosts lack


def check(tmp_path, text):
    (tmp_path / "site.toml").write_text(text)
    done = lab("check", "--site", "site.toml", "-c", "c.toml", "-f", "json", cwd=tmp_path)
    return done.returncode, {name: "\n".join(h["lacks"]) for name, h in json.loads(done.stdout)["hosts"].items()}


def test_what_each_host_lacks_is_said_in_words_and_nothing_is_made(hosts, tmp_path):
    tools = tmp_path / "bin"
    (tools / "ceph").write_text("#!/bin/sh\necho 'unable to find a keyring' >&2\nexit 1\n")
    (tools / "ceph").chmod(0o755)
    (tmp_path / "ceph.conf").touch()
    (hosts / "e").write_text("cut")
    text = SITE.format(tmp=tmp_path).replace(f'path = "{tmp_path}/mounted"', 'path = "/nowhere"')
    text = text[: text.index("[[service]]")] + text[text.index("[mount]") :] + f'[ceph]\nconf = "{tmp_path}/ceph.conf"\nprocesses = ["no-such-osd"]\n'
    status, lacks = check(tmp_path, text)
    assert status == 1
    assert "none of no-such-osd runs there" in lacks["a"]
    assert "/nowhere is no directory" in lacks["d"] and f"ceph: client.admin does not get in by {tmp_path}/ceph.conf: unable to find a keyring" in lacks["d"]
    assert "No route to host" in lacks["e"]
    assert list((tmp_path / "remote").iterdir()) == [] and list((tmp_path / "s").iterdir()) == []


def test_programs_ports_and_directories_that_are_wanted_are_looked_for(hosts, tmp_path):
    text = SITE.format(tmp=tmp_path)
    text = text[: text.index("[[service]]")].replace(f"{tmp_path}/remote", "/nowhere") + '[skep]\nhosts = ["a"]\nbin = "/no/skep"\n[delay]\nms = [5]\n'
    status, lacks = check(tmp_path, text)
    assert status == 1 and "/nowhere is no directory where the lab may make its own" in lacks["a"] and "no program /no/skep" in lacks["a"]
    with_all = SITE.format(tmp=tmp_path)
    status, lacks = check(tmp_path, with_all)
    assert "no directory" not in "".join(lacks.values())


def test_a_site_that_lacks_nothing_is_said_to_be_ready(hosts, tmp_path):
    done = lab("check", "--site", "site.toml", "-c", "c.toml", cwd=tmp_path)
    lines = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert " yes" in lines["d"] and " yes" in lines["e"] and (" yes" in lines["a"] or os.geteuid() != 0), done.stdout


# --- what is left


def test_clean_finds_on_hosts_what_a_lab_elsewhere_left_and_lets_the_living_be(hosts, tmp_path):
    f = site_file.read(tmp_path / "site.toml")
    ask = lambda h, argv: ledger.over_ssh(h.at.ssh(), run_plainly)(argv)  # noqa: E731
    for mark in ("0123456789ab", "ba9876543210"):
        (tmp_path / f"remote/lab-{mark}").mkdir()
        (tmp_path / f"remote/lab-{mark}/held-for").touch()
    (tmp_path / "remote/lab-0123456789ab/undo-it").write_text(f"echo >{tmp_path}/undone\n")
    (tmp_path / "remote/lab-aaaaaaaaaaaa").mkdir()  # no lab's: nothing of an anchor
    (tmp_path / "mounted/lab-0123456789ab").mkdir()
    (tmp_path / "mounted/lab-cccccccccccc").mkdir()  # of a lab of which no host knows
    env = {**os.environ, "LAB_GUARD": "x"}
    left = subprocess.Popen(["sleep", "100"], env={**env, "LAB_MARK": "0123456789ab", "LAB_ROLE": "server:x"})
    living = subprocess.Popen(["sleep", "100"], env={**env, "LAB_MARK": "ba9876543210", "LAB_ROLE": "anchor"})
    try:
        found = site_clean.clean(f, ask)
        assert found.stayed == [] and found.removed and all("lab-0123456789ab" in text for text in found.removed)
        assert left.wait(60) == -signal.SIGKILL and living.poll() is None
        assert sorted(p.name for p in (tmp_path / "remote").iterdir()) == ["lab-aaaaaaaaaaaa", "lab-ba9876543210"]
        assert [p.name for p in (tmp_path / "mounted").iterdir()] == ["lab-cccccccccccc"] and (tmp_path / "undone").exists()
        living.kill()
        living.wait()
        (hosts / "e").write_text("cut")
        done = lab("clean", "--scratch", str(tmp_path / "s"), "--site", "site.toml", cwd=tmp_path)
        assert done.returncode == 1 and "host e does not answer, and may have more" in done.stdout, done.stdout + done.stderr
        assert [p.name for p in (tmp_path / "remote").iterdir()] == ["lab-aaaaaaaaaaaa"]
    finally:
        for p in (left, living):
            p.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_an_undo_that_somebody_else_wrote_is_not_run(tmp_path):
    home = tmp_path / "lab-0123456789ab"
    home.mkdir()
    (home / "undo-it").write_text(f"echo >{tmp_path}/undone\n")
    os.chown(home / "undo-it", 12345, 12345)
    run_plainly(ledger.removal("0123456789ab", str(home)))
    assert not (tmp_path / "undone").exists() and not home.exists()


# --- delay

TC = """#!/bin/sh
case "$1 $2" in "qdisc show") cat {tmp}/queue; exit;; esac
echo "tc $*" >>{tmp}/calls
"""
IP = """#!/bin/sh
case $4 in 10.0.0.9) d=lo;; 10.*) d=eth0;; *) d=eth1;; esac
echo "$4 dev $d src 1.2.3.4"
"""


@pytest.fixture
def delayed(tmp_path):
    bin, home = tmp_path / "bin", tmp_path / "lab-x"
    bin.mkdir()
    home.mkdir()
    for name, text in (("tc", TC), ("ip", IP), ("getent", "#!/bin/sh\n[ $2 = name ] && echo '10.0.0.2 STREAM'\n")):
        (bin / name).write_text(text.format(tmp=tmp_path))
        (bin / name).chmod(0o755)

    def run(ms, *servers, queue="qdisc noqueue 0: root refcnt 2"):
        (tmp_path / "queue").write_text(queue)
        (tmp_path / "calls").write_text("")
        done = subprocess.run(["sh", "-c", site.DELAY, "sh", str(home), str(ms), *servers], capture_output=True, text=True, env={"PATH": f"{bin}:{os.environ['PATH']}"})
        return done, (tmp_path / "calls").read_text().splitlines()

    return run, home


def test_only_the_way_to_the_servers_is_slowed_and_an_undo_is_written_before(delayed):
    run, home = delayed
    done, calls = run(5, "name", "10.0.0.3", "192.168.0.1", "10.0.0.9")
    assert done.returncode == 0, done.stderr
    assert calls == [
        "tc qdisc add dev eth0 root handle 1ab0: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
        "tc qdisc add dev eth0 parent 1ab0:2 handle 1ab1: netem delay 5ms limit 100000",
        "tc filter add dev eth0 parent 1ab0: protocol ip prio 1 u32 match ip dst 10.0.0.2 flowid 1ab0:2",
        "tc filter add dev eth0 parent 1ab0: protocol ip prio 1 u32 match ip dst 10.0.0.3 flowid 1ab0:2",
        "tc qdisc add dev eth1 root handle 1ab0: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
        "tc qdisc add dev eth1 parent 1ab0:2 handle 1ab1: netem delay 5ms limit 100000",
        "tc filter add dev eth1 parent 1ab0: protocol ip prio 1 u32 match ip dst 192.168.0.1 flowid 1ab0:2",
    ]
    assert sorted(p.name for p in home.iterdir()) == ["undo-delay-eth0", "undo-delay-eth1"]
    assert "tc qdisc del dev eth0 root" in (home / "undo-delay-eth0").read_text()


def test_a_delay_is_taken_back_and_somebody_s_own_queue_is_left_alone(delayed):
    run, _ = delayed
    assert run(0, "10.0.0.3", queue="qdisc prio 1ab0: root refcnt 2 bands 2")[1] == ["tc qdisc del dev eth0 root"]
    assert run(0, "10.0.0.3")[1] == []
    done, calls = run(5, "10.0.0.3", queue="qdisc htb 1: root refcnt 2 r2q 10")
    assert done.returncode == 1 and "eth0 has a queue of its own (htb): no delay is added there" in done.stderr and calls == []
    assert "all servers are on this host" in run(5, "10.0.0.9")[0].stderr


def test_cases_with_a_delay_are_left_out_with_the_reason_where_none_can_be_added(hosts, tmp_path):
    (tmp_path / "bin/tc").write_text("#!/bin/sh\necho 'Error: Specified qdisc kind is unknown.' >&2\nexit 2\n")
    (tmp_path / "bin/tc").chmod(0o755)
    (tmp_path / "site.toml").write_text(SITE.format(tmp=tmp_path) + "[delay]\nms = [0, 5]\n")
    done = lab(*RUN, "--no-report", cwd=tmp_path)
    run = load_run(tmp_path / "run")
    assert done.returncode == 1 and "no delay can be added" in run.end_reason and "d: " in run.end_reason, done.stdout + done.stderr
    assert {s.case["delay"] for s in run.samples} == {0}


def test_a_dry_run_counts_a_site_s_cases_and_asks_no_host(hosts, tmp_path):
    for name in "ade":
        (hosts / name).write_text("cut")
    (tmp_path / "site.toml").write_text(SITE.format(tmp=tmp_path) + '[skep]\nhosts = ["a"]\n[gluster]\nhosts = ["a"]\n[delay]\nms = [0, 5]\n')
    done = lab("run", "matrix", "--site", "site.toml", "--backends", "mount:1,skep:1,gluster:1", "-c", "c.toml", "--dry-run", "-f", "json", cwd=tmp_path)
    rows = json.loads(done.stdout)["rows"]
    assert [(r["backend"], r["cases"], r["missing"]) for r in rows] == [("mount:1", 2, ""), ("skep:1", 2, ""), ("gluster:1", 2, "")]


# --- the file

PARTS = SITE.format(tmp="/t")


@pytest.mark.parametrize(
    "more, said",
    [
        ('[skep]\nhosts = ["a", "z"]\n', r"skep\.hosts: no server z; there are a"),
        ('[skep]\nhosts = ["a", "a"]\n', r"skep\.hosts: a host twice"),
        ('[skep]\nhosts = ["a"]\nsend = "nothing-there"\n', r"skep\.send: .*nothing-there is no file here"),
        ('[skep]\nhosts = ["a"]\nosds = 0\n', r"skep\.osds: 0 is not from 1"),
        ('[gluster]\nvolume = "-x"\n', r"gluster\.volume: '-x' is no HOST:/NAME"),
        ("[delay]\nms = []\n", r"delay\.ms: \[\] is no list of 1 to 20"),
        ("[delay]\nms = [-1]\n", r"delay\.ms: \[-1\] is no list"),
        ('[[host]]\nname = "f"\nstorage = "-x"\nroles = ["client"]\n', r"storage: '-x' is no name or address"),
        ('[[service]]\nname = "busy"\nbackend = "mount"\nhost = "a"\ncommand = "x"\n', r"service\[2\]\.name: busy is there twice"),
        ("".join(f'[[service]]\nname = "s{n}"\nbackend = "mount"\nhost = "a"\ncommand = "x"\n' for n in range(SESSIONS_MAX)), r"programs on a; one connection carries"),
    ],
)
def test_what_a_site_file_says_wrongly_is_told_with_its_key(tmp_path, more, said):
    (tmp_path / "site.toml").write_text(PARTS + more)
    with pytest.raises(PlanError, match=said):
        site_file.read(tmp_path / "site.toml")


def test_a_site_file_may_not_turn_the_check_of_host_keys_off(tmp_path):
    (tmp_path / "site.toml").write_text(PARTS.replace("[ssh]", '[ssh]\noptions = ["StrictHostKeyChecking=no"]'))
    with pytest.raises(PlanError, match=r"ssh\.options: StrictHostKeyChecking=no: hosts' keys are always checked"):
        site_file.read(tmp_path / "site.toml")


def test_a_cluster_of_the_site_s_own_is_a_back_end_only_where_it_is_named(tmp_path):
    (tmp_path / "site.toml").write_text(PARTS + '[skep]\nhosts = ["a"]\n[gluster]\nvolume = "a:/vol"\n')
    made = site_file.read(tmp_path / "site.toml")
    assert made.kinds == ["skep", "gluster", "mount"] and made.starts["skep"].osds == 1 and made.volume == "a:/vol"


