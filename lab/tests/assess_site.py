"""A site's assessment on one machine: three servers and two clients as machines.py makes them, Skep started by the lab beside a Ceph that is there.

`python assess_site.py --skep PROGRAM --out DIR` leaves the run's directory, as `lab run` does. Needs what machines.py needs, and etcd-server,
fio, ceph-common, ceph-mon, ceph-mgr, ceph-osd. No test: it measures, some six minutes.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from machines import Machines, why_not
from test_site_machines import CEPH, START, site_text

SERVERS, CLIENTS = "abc", "de"
SETTINGS = Path(__file__).parents[2] / "docs/assessment/site.toml"
# $1: its files, $2: its number, $3: its address. Beside what START has made on the first machine.
OSD = """set -e
cd "$1"; export CEPH_CONF=$1/ceph.conf CEPH_KEYRING=$1/keyring
mkdir "osd.$2"; ceph auth get-or-create "osd.$2" mon 'allow profile osd' osd 'allow *' mgr 'allow profile osd' >"osd.$2/keyring"
uuid=$(cat /proc/sys/kernel/random/uuid); ceph osd new "$uuid" "$2"
ceph-osd -i "$2" --mkfs --osd-uuid "$uuid" -k "$1/osd.$2/keyring"; ceph-osd -i "$2" -k "$1/osd.$2/keyring" --public-addr "$3"
"""
WHOLE = """set -e
export CEPH_CONF=$1/ceph.conf CEPH_KEYRING=$1/keyring
ceph osd pool set tests size 3
for n in $(seq 60); do ceph pg stat | grep -q '^[0-9]* pgs: [0-9]* active+clean;' && exit; sleep 1; done
ceph -s >&2; exit 1
"""


def ceph(world: Machines, home: Path) -> str:
    """A stock one, an OSD on each server, three copies, cephx; its table in the site's file."""
    home.mkdir()
    first = world.made[SERVERS[0]]
    (home / "ceph.conf").write_text(CEPH.format(at=first.address, d=home))
    first.run("sh", "-c", START, "sh", str(home))
    for number, name in enumerate(SERVERS[1:], 1):
        world.made[name].run("sh", "-c", OSD, "sh", str(home), str(number), world.made[name].address)
    first.run("sh", "-c", WHOLE, "sh", str(home))
    for name in CLIENTS:
        etc = world.made[name].base / "etc/ceph"
        # The client's own cache is off on both sides.
        (etc / "ceph.conf").write_text((home / "ceph.conf").read_text() + "[client]\nrbd_cache = false\n")
        shutil.copy(home / "bench.keyring", etc / "ceph.client.bench.keyring")
    return '[ceph]\nconf = "/etc/ceph/ceph.conf"\npool = "tests"\nuser = "bench"\nprocesses = ["ceph-osd", "ceph-mon", "ceph-mgr"]\n'


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--skep", type=Path, required=True)
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--site", type=Path, default=Path("/tmp/site"), help="a new directory for the site's file, which the run's head names")
    asked = words.parse_args()
    if why := why_not():
        raise SystemExit(why)
    asked.site.mkdir()
    try:
        with tempfile.TemporaryDirectory(prefix="site-") as made, Machines(Path(made) / "m") as world:
            for name in SERVERS + CLIENTS:
                world.add(name)
            file = asked.site / "site.toml"
            text = site_text(world, {n: "server" if n in SERVERS else "client" for n in SERVERS + CLIENTS})
            text += f"[skep]\nhosts = {list(SERVERS)!r}\nsend = \"{asked.skep.absolute()}\"\n".replace("'", '"')
            file.write_text(text + ceph(world, Path(made) / "ceph"))
            argv = ["run", "matrix", "layouts", "failure", "--site", str(file), "--backends", "skep:3,ceph:3", "-c", str(SETTINGS), "--out", str(asked.out.absolute())]
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
            done = subprocess.run(world.operator.in_its_network(sys.executable, "-c", "from lab.cli import main; main()", *argv), env=env, stdin=subprocess.DEVNULL)
    finally:
        shutil.rmtree(asked.site)
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
