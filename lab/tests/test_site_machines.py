"""Sites as an operator has them: machines with a network, mounts and an sshd each (machines.py), servers on some, clients on others."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import machines
import pytest
from machines import Machines, wait_until

from lab.records import load_run

WHY_NOT = machines.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
LONG = pytest.mark.skipif(not os.environ.get("SKEP_TEST_LONG"), reason="long: dev/test --all runs it")
SETTINGS = '[run]\nscratch = "{tmp}/s"\n[matrix]\nsize = "4M"\nruntime = {runtime}\nramp = 0.0\ngrid = [{{ bs = [4096], read = {read}, depth = [2], clients = [1] }}]\n'
BUSY = ('[[service]]\nname = "busy"\nbackend = "mount"\nhost = "a"\nready = "serving"\n'
        "command = \"sh -c 'echo serving; while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep 0.05; done'\"\n")


def site_text(world, roles):
    text = world.ssh_table()
    for name, role in roles.items():
        text += f'[[host]]\nname = "{name}"\naddress = "{world.made[name].address}"\nroles = ["{role}"]\n'
    return text


@pytest.fixture
def world(tmp_path):
    with Machines(tmp_path / "m") as made:
        yield made


def lab(world, tmp_path, *args, **more):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MPLCONFIGDIR": str(tmp_path / "mpl")}
    argv = world.operator.in_its_network(sys.executable, "-c", "from lab.cli import main; main()", *args)
    if more:
        return subprocess.Popen(argv, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, text=True, **more)
    return subprocess.run(argv, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400)


def run_words(backends, *more):
    return "run", "matrix", "--site", "site.toml", "--backends", backends, "-c", "c.toml", "--rounds", "1", "--out", "run", *more


def loaded(machine):
    """Whether the measurement of 300 s runs there."""
    return any(c.startswith("fio ") and "--runtime=300000ms" in c for c in machine.commands())


def nothing_is_left(world, names):
    """No process of the lab's, no directory, no mount."""
    for name in names:
        machine = world.made[name]
        left = [c for c in machine.commands() if "LAB_" in c or "lab-" in c or "sleep" in c or "fio" in c]
        if left or machine.run("ls", "/var/tmp").split() or "lab-" in machine.run("cat", "/proc/mounts"):
            return False
    return True


def test_servers_and_clients_on_machines_and_nothing_stays_after_sigkill(world, tmp_path):
    """A shared mount (a directory of both clients), a server that is busy. First whole, then killed in the middle."""
    roles = {"a": "server", "d": "client", "e": "client"}
    for name in roles:
        world.add(name)
    (tmp_path / "shared").mkdir()
    (tmp_path / "site.toml").write_text(site_text(world, roles) + BUSY + f'[mount]\npath = "{tmp_path}/shared"\nacknowledged = "sent"\n')
    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path, runtime=1.0, read=[50]))

    ready = lab(world, tmp_path, "check", "--site", "site.toml", "-c", "c.toml")
    assert ready.returncode == 0, ready.stdout + ready.stderr
    done = lab(world, tmp_path, *run_words("mount:1", "--no-report"))
    assert done.returncode == 0, done.stdout + done.stderr
    run = load_run(tmp_path / "run")
    hosts, values = run.by_host[0].hosts, {s.metric: s.value for s in run.samples}
    assert set(hosts) == {"a", "d", "e"} and hosts["a"]["server_user"] > 0 and hosts["d"]["iops"] > 0 and hosts["e"]["iops"] > 0
    assert values["iops"] == pytest.approx(hosts["d"]["iops"] + hosts["e"]["iops"], rel=1e-3)
    assert nothing_is_left(world, roles) and list((tmp_path / "shared").iterdir()) == [] and list((tmp_path / "s").iterdir()) == []

    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path, runtime=300.0, read=[50]))
    shutil.rmtree(tmp_path / "run")
    running = lab(world, tmp_path, *run_words("mount:1"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: all(loaded(world.made[n]) for n in "de"))
    finally:
        running.kill()
        running.wait()
    wait_until(lambda: nothing_is_left(world, roles) and not list((tmp_path / "shared").iterdir()))


@LONG
def test_a_machine_that_freezes_in_mid_run_is_in_the_report_and_is_cleaned_when_it_is_back(world, tmp_path):
    roles = {"a": "server", "d": "client", "e": "client"}
    for name in roles:
        world.add(name)
    (tmp_path / "shared").mkdir()
    (tmp_path / "site.toml").write_text(site_text(world, roles) + BUSY + f'[mount]\npath = "{tmp_path}/shared"\nacknowledged = "sent"\n')
    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path, runtime=4.0, read=[0, 50, 100]))
    running = lab(world, tmp_path, *run_words("mount:1"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: (tmp_path / "run/run.jsonl").exists() and '"result"' in (tmp_path / "run/run.jsonl").read_text())
        world.made["e"].freeze()
        said, _ = running.communicate(timeout=300)
    finally:
        running.kill()
    run = load_run(tmp_path / "run")
    assert running.returncode == 1 and "host e (10.77.0." in run.end_reason and "on host e could not be removed" in run.end_reason, said
    assert any(s.ok for s in run.samples) and "host e" in (tmp_path / "run/report.html").read_text()
    assert nothing_is_left(world, ["a", "d"])
    asked = lab(world, tmp_path, "clean", "--scratch", str(tmp_path / "s"), "--site", "site.toml")
    assert asked.returncode == 1 and "host e does not answer" in asked.stdout, asked.stdout + asked.stderr
    world.made["e"].thaw()
    wait_until(lambda: lab(world, tmp_path, "clean", "--scratch", str(tmp_path / "s"), "--site", "site.toml").returncode == 0)
    wait_until(lambda: nothing_is_left(world, ["e"]))
    assert list((tmp_path / "shared").iterdir()) == []


@LONG
def test_clean_by_the_site_s_file_finds_what_a_machine_kept(world, tmp_path):
    """The guards are killed as well, and the ledger is another machine's: only the hosts themselves know."""
    roles = {"d": "client"}
    world.add("d")
    (tmp_path / "shared").mkdir()
    (tmp_path / "site.toml").write_text(site_text(world, roles) + f'[mount]\npath = "{tmp_path}/shared"\nacknowledged = "sent"\n')
    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path, runtime=300.0, read=[50]))
    running = lab(world, tmp_path, *run_words("mount:1"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    machine = world.made["d"]
    try:
        wait_until(lambda: loaded(machine))
        living = lab(world, tmp_path, "clean", "--scratch", str(tmp_path / "other"), "--site", "site.toml")
        assert living.returncode == 0 and living.stdout == "" and loaded(machine)
        machine.run("sh", "-c", "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -q '^bash -c set -m' && kill -9 ${p#/proc/}; done; pkill -9 -x sleep; true", check=False)
    finally:
        running.kill()
        running.wait()
    assert loaded(machine) and machine.run("ls", "/var/tmp").split() and list((tmp_path / "shared").iterdir())
    done = lab(world, tmp_path, "clean", "--scratch", str(tmp_path / "other"), "--site", "site.toml")
    assert done.returncode == 0 and "on host d" in done.stdout, done.stdout + done.stderr
    wait_until(lambda: nothing_is_left(world, ["d"]))
    assert list((tmp_path / "shared").iterdir()) == []


SKEP = shutil.which(os.environ.get("SKEP_BIN", "skep"))


@LONG
@pytest.mark.skipif(not (SKEP and shutil.which("etcd") and shutil.which("rbd")), reason="needs SKEP_BIN, etcd-server, ceph-common")
def test_skep_is_started_over_three_machines_and_measured_from_two(world, tmp_path):
    roles = {"a": "server", "b": "server", "c": "server", "d": "client", "e": "client"}
    for name in roles:
        world.add(name)
    (tmp_path / "site.toml").write_text(site_text(world, roles) + f'[skep]\nhosts = ["a", "b", "c"]\nsend = "{SKEP}"\n')
    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path, runtime=3.0, read=[0]))
    done = lab(world, tmp_path, *run_words("skep:3", "--no-report"))
    assert done.returncode == 0, done.stdout + done.stderr
    run = load_run(tmp_path / "run")
    hosts = run.by_host[0].hosts
    # Three copies: each server has written and received, each client has sent.
    assert all(hosts[h]["server_written"] > 0 and hosts[h]["server_memory"] > 0 and hosts[h]["net_in"] > 0 for h in "abc")
    assert all(hosts[h]["iops"] > 0 and hosts[h]["net_out"] > hosts[h]["bandwidth"] * 0.1 for h in "de")
    assert {s.metric: s.value for s in run.samples}["write_amplification"] >= 2.5
    assert nothing_is_left(world, roles) and list((tmp_path / "s").iterdir()) == []


@LONG
@pytest.mark.skipif(not (SKEP and shutil.which("etcd") and shutil.which("rbd")), reason="needs SKEP_BIN, etcd-server, ceph-common")
def test_a_machine_s_skep_is_killed_or_hangs_and_the_others_go_on(world, tmp_path):
    roles = {"a": "server", "b": "server", "c": "server", "d": "client"}
    for name in roles:
        world.add(name)
    (tmp_path / "site.toml").write_text(site_text(world, roles) + f'[skep]\nhosts = ["a", "b", "c"]\nsend = "{SKEP}"\n')
    (tmp_path / "c.toml").write_text(f'[run]\nscratch = "{tmp_path}/s"\n[failure]\nsize = "16M"\nrate = 100\nbefore = 2.0\noutage = 10.0\nafter = 20.0\nrecover_limit = 90.0\n')
    done = lab(world, tmp_path, "run", "failure", "--site", "site.toml", "--backends", "skep:3", "-c", "c.toml", "--rounds", "1", "--out", "run")
    assert done.returncode == 0, done.stdout + done.stderr
    values = {(s.case["fault"], s.metric): s.value for s in load_run(tmp_path / "run").samples}
    for fault in ("kill", "hang"):
        assert values[fault, "errors"] == 0 and values[fault, "stall"] < 10.0 and not values[fault, "stall_censored"], values
    assert nothing_is_left(world, roles) and list((tmp_path / "s").iterdir()) == []


@LONG
@pytest.mark.skipif(not all(map(shutil.which, ("glusterd", "gluster", "glusterfs"))) or not Path("/dev/fuse").exists(), reason="needs glusterfs-server, glusterfs-client, FUSE")
def test_gluster_is_started_over_machines_and_its_mounts_go_with_a_killed_lab(world, tmp_path):
    roles = {"a": "server", "b": "server", "d": "client"}
    for name in roles:
        world.add(name)
    (tmp_path / "site.toml").write_text(site_text(world, roles) + '[gluster]\nhosts = ["a", "b"]\n')
    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path, runtime=300.0, read=[50]))
    running = lab(world, tmp_path, *run_words("gluster:2"), stdout=open(tmp_path / "said", "w"), stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: running.poll() is not None or loaded(world.made["d"]), 240)
        assert running.poll() is None, (tmp_path / "said").read_text()
        assert "fuse.glusterfs" in world.made["d"].run("cat", "/proc/mounts")
    finally:
        running.kill()
        running.wait()
    wait_until(lambda: nothing_is_left(world, roles), 120)


@LONG
@pytest.mark.skipif(not all(map(shutil.which, ("glusterd", "gluster", "glusterfs"))) or not Path("/dev/fuse").exists(), reason="needs glusterfs-server, glusterfs-client, FUSE")
def test_somebody_s_gluster_volume_keeps_nothing_of_a_lab_that_was_killed(world, tmp_path):
    roles = {"a": "server", "d": "client"}
    for name in roles:
        world.add(name)
    a = world.made["a"]
    a.run("sh", "-c", "glusterd && mkdir /var/tmp/brick && until gluster --mode=script volume create v a:/var/tmp/brick force; do sleep 0.5; done && gluster volume start v && touch /var/tmp/brick-up")
    volume = '[gluster]\nvolume = "a:/v"\nprocesses = ["glusterfsd", "glusterd"]\n'
    (tmp_path / "site.toml").write_text(site_text(world, roles) + volume)
    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path, runtime=1.0, read=[50]))
    ready = lab(world, tmp_path, "check", "--site", "site.toml", "-c", "c.toml")
    assert ready.returncode == 0, ready.stdout + ready.stderr
    done = lab(world, tmp_path, *run_words("gluster:1", "--no-report"))
    assert done.returncode == 0, done.stdout + done.stderr
    hosts = load_run(tmp_path / "run").by_host[0].hosts
    assert hosts["a"]["server_user"] + hosts["a"]["server_system"] > 0 and hosts["d"]["iops"] > 0
    mine = "ls /var/tmp/brick"
    assert a.run("sh", "-c", mine) == "" and nothing_is_left(world, ["d"])
    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path, runtime=300.0, read=[50]))
    shutil.rmtree(tmp_path / "run")
    running = lab(world, tmp_path, *run_words("gluster:1"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: running.poll() is not None or loaded(world.made["d"]), 240)
        assert "lab-" in a.run("sh", "-c", mine)
    finally:
        running.kill()
        running.wait()
    wait_until(lambda: nothing_is_left(world, ["d"]) and a.run("sh", "-c", mine) == "", 120)
    assert any("glusterfsd" in c for c in a.commands())


CEPH = """[global]
fsid = 6f0a3f2e-0d1c-4b8e-9a51-3c4f6d1e2b7a
mon_host = [v2:{at}:17700,v1:{at}:17701]
public_addr = {at}
osd_crush_chooseleaf_type = 0
osd_pool_default_min_size = 1
mon_allow_pool_size_one = true
mon_data_avail_crit = 1
osd_data = {d}/osd.$id
mon_data = {d}/mon.$id
mgr_data = {d}/mgr.$id
run_dir = {d}
log_file = {d}/$name.log
admin_socket =
pid_file =
bluestore_block_size = 4294967296
osd_memory_target = 1073741824
"""
# $1: its files. A stock cluster with cephx: pools may not be deleted, a user may use one pool and nothing else.
START = """set -e
cd "$1"; export CEPH_CONF=$1/ceph.conf CEPH_KEYRING=$1/keyring
at=$(sed -n 's/public_addr = //p' ceph.conf)
ceph-authtool --create-keyring keyring --gen-key -n mon. --cap mon 'allow *'
ceph-authtool keyring --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
monmaptool --create --fsid 6f0a3f2e-0d1c-4b8e-9a51-3c4f6d1e2b7a --addv a "[v2:$at:17700,v1:$at:17701]" monmap
ceph-mon --mkfs -i a --monmap monmap --keyring keyring
ceph-mon -i a
mkdir mgr.x; ceph auth get-or-create mgr.x mon 'allow *' osd 'allow *' >mgr.x/keyring; ceph-mgr -i x -k "$1/mgr.x/keyring"
mkdir osd.0; ceph auth get-or-create osd.0 mon 'allow profile osd' osd 'allow *' mgr 'allow profile osd' >osd.0/keyring
uuid=$(cat /proc/sys/kernel/random/uuid); ceph osd new "$uuid" 0
ceph-osd -i 0 --mkfs --osd-uuid "$uuid" -k "$1/osd.0/keyring"; ceph-osd -i 0 -k "$1/osd.0/keyring"
ceph osd pool create tests 16 16; ceph osd pool set tests size 1 --yes-i-really-mean-it; rbd pool init tests
ceph auth get-or-create client.bench mon 'profile rbd' osd 'profile rbd pool=tests' >bench.keyring
"""


@LONG
@pytest.mark.skipif(not all(map(shutil.which, ("ceph-mon", "ceph-mgr", "ceph-osd", "rbd"))), reason="needs ceph-mon, ceph-mgr, ceph-osd, ceph-common")
def test_an_existing_ceph_is_used_by_a_user_who_may_use_one_pool(world, tmp_path):
    roles = {"a": "server", "d": "client", "e": "client"}
    for name in roles:
        world.add(name)
    home = tmp_path / "ceph"
    home.mkdir()
    (home / "ceph.conf").write_text(CEPH.format(at=world.made["a"].address, d=home))
    world.made["a"].run("sh", "-c", START, "sh", str(home))
    for name in "de":
        for kept in ("ceph.conf", "bench.keyring"):
            shutil.copy(home / kept, world.made[name].base / "etc/ceph" / ("ceph.client.bench.keyring" if kept != "ceph.conf" else kept))
    site = site_text(world, roles) + '[ceph]\nconf = "/etc/ceph/ceph.conf"\npool = "tests"\nuser = "bench"\nprocesses = ["ceph-osd", "ceph-mon"]\n'
    (tmp_path / "site.toml").write_text(site.replace('"bench"', '"nobody"'))
    (tmp_path / "c.toml").write_text(SETTINGS.format(tmp=tmp_path, runtime=1.0, read=[50]))
    lacks = lab(world, tmp_path, "check", "--site", "site.toml", "-c", "c.toml")
    assert lacks.returncode == 1 and "client.nobody does not get in" in " ".join(lacks.stdout.split()), lacks.stdout
    (tmp_path / "site.toml").write_text(site)
    lacks = lab(world, tmp_path, "check", "--site", "site.toml", "-c", "c.toml")
    assert lacks.returncode == 0, lacks.stdout + lacks.stderr
    done = lab(world, tmp_path, *run_words("ceph:1", "--no-report"))
    assert done.returncode == 0, done.stdout + done.stderr
    hosts = load_run(tmp_path / "run").by_host[0].hosts
    assert hosts["a"]["server_user"] > 0 and hosts["a"]["server_written"] > 0 and all(hosts[h]["iops"] > 0 for h in "de")
    assert world.made["a"].run("sh", "-c", f"CEPH_KEYRING={home}/keyring rbd -c {home}/ceph.conf ls tests") == ""
    # By its administrator, in a pool of the lab's own, which a stock Ceph lets nobody delete: the report comes, and says what stays.
    for name in "de":
        shutil.copy(home / "keyring", world.made[name].base / "etc/ceph/ceph.client.admin.keyring")
    (tmp_path / "site.toml").write_text(site.replace('pool = "tests"\nuser = "bench"\n', ""))
    shutil.rmtree(tmp_path / "run")
    done = lab(world, tmp_path, *run_words("ceph:1"))
    run = load_run(tmp_path / "run")
    assert done.returncode == 1 and "could not be removed" in run.end_reason and "mon_allow_pool_delete" in run.end_reason, done.stdout + done.stderr
    assert any(s.ok for s in run.samples) and "could not be removed" in (tmp_path / "run/report.html").read_text() and "Traceback" not in done.stderr
    mine = [p for p in world.made["a"].run("sh", "-c", f"CEPH_KEYRING={home}/keyring ceph -c {home}/ceph.conf osd pool ls").split() if p.startswith("lab-")]
    assert len(mine) == 1 and world.made["a"].run("sh", "-c", f"CEPH_KEYRING={home}/keyring rbd -c {home}/ceph.conf ls {mine[0]}") == ""
    asked = lab(world, tmp_path, "clean", "--scratch", str(tmp_path / "s"))
    assert asked.returncode == 1 and mine[0] in asked.stdout
    assert any("ceph-osd" in c for c in world.made["a"].commands())  # the lab ends nothing that it did not start
