"""Hosts over ssh, tried with sshd processes of the test's own on loopback, as the user who runs the test; and site files."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import ledger, process, site_file as site
from lab.plan_toml import PlanError
from lab.process import ToolError, run_plainly
from lab.records import load_curves, load_run
from lab.remote import Address, Host

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
needs_ssh = pytest.mark.skipif(not (SSHD and shutil.which("ssh")), reason="needs openssh-server and openssh-client")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(condition, limit=60):
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    home = tmp_path_factory.mktemp("keys")
    for name in ("user", "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / name)], check=True)
    shutil.copy(home / "user.pub", home / "authorized")
    return home


@pytest.fixture
def sshd(keys, tmp_path):
    """Starts a host; gives its port."""
    running = []

    def start():
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        port = free_port()
        conf = tmp_path / f"sshd-{port}"
        conf.write_text(f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {keys}/host\nAuthorizedKeysFile {keys}/authorized\nStrictModes no\n"
                        f"UsePAM no\nPasswordAuthentication no\nPidFile {conf}.pid\nPermitRootLogin prohibit-password\n")
        running.append(subprocess.Popen([SSHD, "-D", "-e", "-f", str(conf)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

        def listens():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", port)) == 0

        wait_until(listens)
        return port

    yield start
    for p in running:
        p.kill()
        p.wait()


def address(keys, port, name="h1"):
    known = keys / "known"
    with open(known, "a") as f:
        f.write(f"[127.0.0.1]:{port} {(keys / 'host.pub').read_text()}")
    return Address(name, "127.0.0.1", getpass.getuser(), port, str(keys / "user"), (f"UserKnownHostsFile={known}", "StrictHostKeyChecking=yes"))


def alive(pid):
    return bool(process.start_time(pid)) and not process.is_zombie(pid)


@needs_ssh
def test_a_remote_program_s_output_status_and_time_limit(keys, sshd, tmp_path):
    with process.Scratch(tmp_path / "s") as scratch:
        host = Host(address(keys, sshd()), scratch)
        host.connect()
        done = host.run(["sh", "-c", 'echo "$1 $WORD"; echo no >&2; exit 3', "sh", "a 'b' $c"], check=False, env={"WORD": "x y"})
        assert (done.status, done.out, done.err) == (3, "a 'b' $c x y\n", "no\n")
        with pytest.raises(ToolError, match="host h1: .*status 3: no"):
            host.run(["sh", "-c", "echo no >&2; exit 3"])
        with pytest.raises(ToolError, match="host h1: .*no end within"):
            host.run(["sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 100"], timeout=2)
        wait_until(lambda: not alive(int((tmp_path / "pid").read_text())))


@needs_ssh
def test_a_host_that_is_not_there_or_not_the_one_that_is_known(keys, sshd, tmp_path):
    with process.Scratch(tmp_path / "s") as scratch:
        with pytest.raises(ToolError, match=r"host h1 \(127.0.0.1\): .*refused"):
            Host(address(keys, free_port()), scratch).connect()
        port = sshd()
        stranger = Address("h2", "127.0.0.1", getpass.getuser(), port, str(keys / "user"), ("UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=yes"))
        with pytest.raises(ToolError, match="host h2.*verification failed"):
            Host(stranger, scratch).connect()


LAB = """
import sys, time
from pathlib import Path
from lab.process import Scratch
from lab.remote import Address, Host
scratch = Scratch(Path(sys.argv[1]))
host = Host(eval(sys.argv[2]), scratch)
host.connect()
host.start(["sh", "-c", f"setsid sleep 300 & echo $! >{sys.argv[3]}.away; echo $$ >{sys.argv[3]}; exec sleep 300"], "server:x", Path(sys.argv[3] + ".log"))
time.sleep(300)
"""


@needs_ssh
@pytest.mark.parametrize("whom", ["lab", "lab and reaper", "connection"])
def test_remote_processes_end_with_the_lab_and_with_the_connection(keys, sshd, tmp_path, whom):
    pid = tmp_path / "pid"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    lab = subprocess.Popen([sys.executable, "-c", LAB, str(tmp_path / "s"), repr(address(keys, sshd())), str(pid)], env=env, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: pid.exists() and pid.read_text().strip())
        pids = [int(pid.read_text()), int(Path(f"{pid}.away").read_text())]
        assert all(map(alive, pids))
        scratch = next((tmp_path / "s").glob("lab-*"))
        mark = (scratch / process.OWNER_FILE).read_text().split()[2]
        if whom == "lab and reaper":
            for p in (int(p) for p in os.listdir("/proc") if p.isdigit()):
                try:
                    if f"lab.reaper\0{scratch}" in Path(f"/proc/{p}/cmdline").read_text():
                        os.kill(p, signal.SIGKILL)
                except OSError:
                    pass
        if whom == "connection":
            for p in process.marked(mark):  # the master here, as when the network is gone
                try:
                    if "ssh" in Path(f"/proc/{p}/comm").read_text():
                        os.kill(p, signal.SIGKILL)
                except OSError:
                    pass  # the client that started the processes, which has just ended
        else:
            lab.kill()
            lab.wait()
        wait_until(lambda: not any(map(alive, pids)))
    finally:
        lab.kill()
        lab.wait()
        for directory, found in process.abandoned(tmp_path / "s"):
            process.sweep(directory, found)


SITE = """
[ssh]
user = "{user}"
identity = "{keys}/user"
options = ["UserKnownHostsFile={keys}/known", "StrictHostKeyChecking=yes"]
directory = "{tmp}/remote"
[[host]]
name = "c1"
address = "127.0.0.1"
port = {ports[0]}
roles = ["client"]
[[host]]
name = "c2"
address = "127.0.0.1"
port = {ports[1]}
roles = ["client", "server"]
[[service]]
name = "busy"
backend = "mount"
host = "c2"
command = "sh -c 'echo serving; while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep 0.1; done'"
ready = "serving"
[mount]
path = "{tmp}/mounted"
acknowledged = "sent"
"""


@pytest.fixture
def a_site(keys, sshd, tmp_path):
    ports = [sshd(), sshd()]
    for port in ports:
        address(keys, port)
    (tmp_path / "mounted").mkdir()
    path = tmp_path / "site.toml"
    path.write_text(SITE.format(user=getpass.getuser(), keys=keys, tmp=tmp_path, ports=ports))
    (tmp_path / "c.toml").write_text(f'[run]\nscratch = "{tmp_path}/s"\n[matrix]\nsize = "1M"\nruntime = 1.0\nramp = 0.0\n'
                                     'grid = [{ bs = [4096], read = [50], depth = [2], clients = [2], hosts = [1, 2] }]\n')
    return path


def lab(*args, cwd):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", "from lab.cli import main; main()", *args], capture_output=True, text=True, cwd=cwd, env=env, timeout=300)


@needs_ssh
def test_several_clients_measure_at_once_and_leave_nothing(a_site, tmp_path):
    done = lab("run", "matrix", "--site", "site.toml", "--backends", "mount:1", "-c", "c.toml", "--rounds", "1", "--out", "run", "--no-report", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    run = load_run(tmp_path / "run")
    values = {(s.case["hosts"], s.metric): s.value for s in run.samples}
    assert values[2, "host_iops_min"] + values[2, "host_iops_max"] == pytest.approx(values[2, "iops"], rel=1e-3)
    assert values[1, "host_iops_min"] == values[1, "host_iops_max"] == pytest.approx(values[1, "iops"], rel=1e-3)
    # Percentiles of all hosts' operations together, and what the servers used: one that never rests.
    assert values[2, "latency_p50"] <= values[2, "latency_p99"] and values[2, "server_cores"] > 0 and values[2, "server_memory"] > 0
    assert len(load_curves(run, "matrix")) == 2
    assert any(n.startswith("Host c2 (127.0.0.1): client and server") for n in run.environment.notes)
    assert list((tmp_path / "mounted").iterdir()) == [] and list((tmp_path / "remote").iterdir()) == [] and list((tmp_path / "s").iterdir()) == []


@needs_ssh
def test_clean_removes_what_a_killed_lab_left_on_hosts(a_site, tmp_path):
    """The lab and its reaper are killed in the middle: what the hosts' anchors hold goes by itself; what they could not take away is found by
    `lab clean` through the ledger."""
    text = (tmp_path / "c.toml").read_text().replace("runtime = 1.0", "runtime = 300.0")
    (tmp_path / "c.toml").write_text(text)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen([sys.executable, "-c", "from lab.cli import main; main()", "run", "matrix", "--site", "site.toml", "--backends", "mount:1", "-c", "c.toml"],
                             cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: list((tmp_path / "mounted").glob("lab-*/*")))
        scratch = next(p for p in (tmp_path / "s").glob("lab-*") if p.is_dir())
        for p in (int(p) for p in os.listdir("/proc") if p.isdigit()):
            try:
                if f"lab.reaper\0{scratch}" in Path(f"/proc/{p}/cmdline").read_text():
                    os.kill(p, signal.SIGKILL)
            except OSError:
                pass
    finally:
        child.kill()
        child.wait()
    wait_until(lambda: not list((tmp_path / "remote").iterdir()) and not list((tmp_path / "mounted").iterdir()))
    assert ledger.abandoned_hosts(tmp_path / "s")
    mark = ledger.abandoned_hosts(tmp_path / "s")[0].stay.mark
    (tmp_path / "remote" / f"lab-{mark}").mkdir()
    done = lab("clean", "--scratch", str(tmp_path / "s"), cwd=tmp_path)
    assert done.returncode == 0 and "on host c1" in done.stdout, done.stdout + done.stderr
    assert list((tmp_path / "mounted").iterdir()) == [] and list((tmp_path / "remote").iterdir()) == [] and list((tmp_path / "s").iterdir()) == []


@needs_ssh
def test_a_service_that_does_not_come_up_is_a_partial_run_that_says_so(a_site, tmp_path):
    a_site.write_text(a_site.read_text().replace("echo serving; while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep 0.1; done", "echo no disk; exit 4"))
    done = lab("run", "matrix", "--site", "site.toml", "--backends", "mount:1", "-c", "c.toml", "--out", "run", "--no-report", cwd=tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "service busy on c2 ended with status 4: no disk" in load_run(tmp_path / "run").end_reason
    assert list((tmp_path / "remote").iterdir()) == []


def test_clean_refuses_a_directory_that_is_not_the_lab_s(tmp_path):
    entry = ledger.note_host(tmp_path / "lab-x", "m", ledger.HostStay("h", ["ssh", "h"], "/home", "m"))
    assert "is not the lab's" in ledger.remove_host(entry, run_plainly) and entry.path.exists()


GOOD = SITE.format(user="me", keys="k", tmp="/t", ports=[22, 23])


@pytest.mark.parametrize(
    "old, new, said",
    [
        ('roles = ["client"]', 'roles = ["master"]', r"site\.toml:11: host\[1\]\.roles: master: there are client, server"),
        ('roles = ["client"]', "", r"site\.toml:7: host\[1\]\.roles: none"),
        ('name = "c2"', 'name = "c1"', r"site\.toml:13: host\[2\]\.name: c1 is there twice"),
        ('name = "c1"', 'name = "../c"', r"site\.toml:8: host\[1\]\.name: '\.\./c' is not"),
        ('address = "127.0.0.1"\nport = 22', 'address = "-oProxyCommand=x"\nport = 22', r"site\.toml:9: host\[1\]\.address: '-oProxyCommand=x' is no name"),
        ("port = 22", "prot = 22", r"site\.toml:10: host\[1\]\.prot: no such key here"),
        ('host = "c2"', 'host = "c1"', r"site\.toml:20: service\[1\]\.host: no server c1; there are c2"),
        ('backend = "mount"', 'backend = "nfs"', r"service\[1\]\.backend: 'nfs' is none of ceph, skep, gluster, mount"),
        ('path = "/t/mounted"', 'path = "mounted"', r"mount\.path: 'mounted' is no absolute path"),
        ('directory = "/t/remote"', 'directory = "/"', r"ssh\.directory: '/' is no absolute path of a directory"),
        ('acknowledged = "sent"', "", r"mount\.acknowledged: missing"),
        ("[mount]", "[mounts]", r"site\.toml:\d+: \[mounts\]: no such table"),
        ("[ssh]", "[ssh", r"site\.toml:2: no TOML"),
    ],
)
def test_a_bad_site_file_is_refused_with_line_and_key(tmp_path, old, new, said):
    assert old in GOOD
    (tmp_path / "site.toml").write_text(GOOD.replace(old, new, 1))
    with pytest.raises(PlanError, match=said):
        site.read(tmp_path / "site.toml")


@pytest.mark.parametrize(
    "args, said",
    [
        (["boot", "--backends", "mount:1"], "--site measures matrix, layouts, metadata, failure so far, not boot"),
        (["matrix", "--backends", "nfs:1"], "--site measures ceph, skep, gluster, mount, not nfs"),
        (["matrix", "--backends", "gluster:1"], "does not say where gluster is: a table [gluster] with volume, or hosts"),
        (["matrix", "--backends", "ceph:3"], "does not say where ceph is: a table [ceph] with conf"),
    ],
)
def test_what_a_site_cannot_do_is_refused_before_anything_starts(tmp_path, args, said):
    (tmp_path / "site.toml").write_text(GOOD)
    done = lab("run", *args, "--site", "site.toml", cwd=tmp_path)
    assert done.returncode == 2 and said in " ".join(done.stderr.split()), done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["site.toml"]
