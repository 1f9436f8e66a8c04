"""Machines for tests of sites, on one machine: each has a network, mounts, processes and a name of its own, and an sshd; one switch joins them.

Nothing of it has a name that could stay: namespaces are held by processes alone, every process is a child of one that the kernel ends
when the test's own process ends (PR_SET_PDEATHSIG), however that comes, and a veth goes with its namespace. Needs root, unshare,
setpriv, nsenter, ip, sshd.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
PRIVATE = ("/run", "/var/tmp", "/var/lib/glusterd", "/var/log/glusterfs", "/etc/ceph")
OWN = ["--net", "--mount", "--pid", "--uts", "--fork", "--kill-child=KILL", "--mount-proc"]

# $1: its own files, beside which `hosts`, `resolv`, `passwd` and `empty` lie, $2: name, $3: address; then what runs there. eth0 is put in from outside.
INIT = """set -e
base=$1 name=$2 address=$3; shift 3
hostname "$name"
for d in {private}; do [ ! -d "$d" ] || {{ mkdir -p "$base$d"; mount --bind "$base$d" "$d"; }}; done
mount --bind "$base/../hosts" /etc/hosts
[ ! -e /etc/resolv.conf ] || mount --bind "$base/../resolv" /etc/resolv.conf
mount --bind "$base/../passwd" /etc/passwd
# What the user of this machine has in there is not meant for commands that are killed in the middle.
for f in ~/.bashrc ~/.profile ~/.bash_profile; do [ ! -e "$f" ] || mount --bind "$base/../empty" "$f"; done
mkdir -p /run/sshd
ip link set lo up
while ! ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done  # /sys is that of the machine around
ip address add "$address/24" dev eth0
ip link set eth0 up
exec "$@"
""".format(private=" ".join(PRIVATE))


def wait_until(condition, limit=60):
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def why_not():
    """What keeps machines from being made here, or ""."""
    if os.geteuid() != 0:
        return "needs root"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    if gone := [p for p in ("sshd", "ssh", "ip", "unshare", "setpriv", "nsenter") if not shutil.which(p, path=path)]:
        return f"needs {', '.join(gone)}"
    tried = subprocess.run(["unshare", *OWN, "ip", "link", "add", "a0", "type", "veth", "peer", "name", "a1"], capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"no network of its own can be made: {tried.stderr.strip()}"


class Machines:
    """Use as a context manager; `add` machines, `operator` is the one without an sshd, where the lab runs."""

    def __init__(self, home: Path) -> None:
        self.home, self.made, self.count = home, {}, 0
        home.mkdir(parents=True, exist_ok=True)

    def __enter__(self):
        for name in ("user", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(self.home / name)], check=True)
        shutil.copy(self.home / "user.pub", self.home / "authorized")
        self.known = self.home / "known"
        self.known.touch()
        (self.home / "hosts").write_text("127.0.0.1 localhost\n")
        (self.home / "empty").touch()
        # An sshd that was unpacked and not installed has no user of its own.
        users = Path("/etc/passwd").read_text()
        (self.home / "passwd").write_text(users if "\nsshd:" in users else users + "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n")
        (self.home / "resolv").write_text("options timeout:1 attempts:1\n")  # nobody answers from in there
        self.switch = self._spawn(["unshare", "--net", "sh", "-c", "ip link add br0 type bridge && ip link set br0 up && exec sleep 100000"])
        self._wait_for_net(self.switch.pid)
        wait_until(lambda: self._ip_of_switch("link", "show", "br0", check=False) == 0)
        self.operator = self.add("operator", ["sleep", "100000"])
        return self

    def __exit__(self, *_):
        for machine in self.made.values():
            machine.off()
        self.switch.kill()
        self.switch.wait()

    def _spawn(self, argv, **more):
        return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *argv], stdin=subprocess.DEVNULL, start_new_session=True, **more)

    @staticmethod
    def _wait_for_net(pid):
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{pid}/ns/net") != own)

    def _ip_of_switch(self, *words, check=True):
        return subprocess.run(["nsenter", f"--net=/proc/{self.switch.pid}/ns/net", "ip", *words], check=check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode

    def add(self, name, program=None):
        self.count += 1
        address = f"10.77.0.{self.count}"
        base = self.home / name
        base.mkdir()
        with open(self.home / "hosts", "a") as f:
            f.write(f"{address} {name}\n")
        if program is None:
            conf = self.home / f"{name}.sshd"
            conf.write_text(f"ListenAddress {address}\nPort 22\nHostKey {self.home}/host\nAuthorizedKeysFile {self.home}/authorized\nStrictModes no\n"
                            "UsePAM no\nPasswordAuthentication no\nPidFile none\nPermitRootLogin prohibit-password\n")
            program = [SSHD, "-D", "-e", "-f", str(conf)]
            with open(self.known, "a") as f:
                f.write(f"{address} {(self.home / 'host.pub').read_text()}")
        with open(self.home / f"{name}.log", "ab") as log:
            process = self._spawn(["unshare", *OWN, "sh", "-c", INIT, "machine", str(base), name, address, *program], stdout=log, stderr=log)
        self._wait_for_net(process.pid)
        port = f"p{self.count}"
        self._ip_of_switch("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(process.pid))
        self._ip_of_switch("link", "set", port, "master", "br0")
        self._ip_of_switch("link", "set", port, "up")
        self.made[name] = Machine(self, name, address, base, port, process)
        self.made[name].wait_for_sshd() if program[0] == SSHD else None
        return self.made[name]

    def ssh_table(self):
        """[ssh] of a site file."""
        return f'[ssh]\nuser = "root"\nidentity = "{self.home}/user"\noptions = ["UserKnownHostsFile={self.known}"]\n'


class Machine:
    def __init__(self, machines, name, address, base, port, process) -> None:
        self.machines, self.name, self.address, self.base, self.port, self.process = machines, name, address, base, port, process

    @property
    def init(self):
        """The pid, out here, of its first process."""
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    def enter(self, *argv):
        """A command that runs there."""
        return ["nsenter", "-t", str(self.init), "-n", "-m", "-p", "-u", "--", *argv]

    def run(self, *argv, check=True):
        return subprocess.run(self.enter(*argv), check=check, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout

    def in_its_network(self, *argv):
        """A command that has only its network: files and processes are those out here."""
        return ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", "--", *argv]

    def wait_for_sshd(self):
        hexed = "".join(f"{int(p):02X}" for p in reversed(self.address.split("."))) + ":0016"
        wait_until(lambda: self.process.poll() is not None or hexed in Path(f"/proc/{self.process.pid}/net/tcp").read_text())
        assert self.process.poll() is None, (self.machines.home / f"{self.name}.log").read_text()

    def pids(self):
        """All of its processes, as numbered out here."""
        wanted, found = os.readlink(f"/proc/{self.init}/ns/pid"), []
        for p in (p for p in os.listdir("/proc") if p.isdigit()):
            try:
                if os.readlink(f"/proc/{p}/ns/pid") == wanted:
                    found.append(int(p))
            except OSError:
                pass
        return found

    def commands(self):
        """Command lines of what runs there."""
        found = []
        for p in self.pids():
            try:
                found.append(Path(f"/proc/{p}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip())
            except OSError:
                pass
        return found

    def freeze(self):
        self._tell(signal.SIGSTOP)

    def thaw(self):
        self._tell(signal.SIGCONT)

    def _tell(self, which):
        for p in self.pids():
            with contextlib.suppress(ProcessLookupError):  # what wakes first may end others
                os.kill(p, which)

    def cable(self, connected):
        self.machines._ip_of_switch("link", "set", self.port, "up" if connected else "down")

    def off(self):
        self.process.kill()
        self.process.wait()
