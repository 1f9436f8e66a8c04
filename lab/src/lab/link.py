"""A slow network between clients and servers, and nowhere else: `python -m lab.link MS` holds a network namespace for clients, joined to the
lab's own by two TUN devices, and keeps each packet for half of MS on its way. Servers talk to each other over loopback as ever.

In the clients' network 127.0.0.0/8 leads through the link, so that addresses that servers announce (they listen on loopback) are reached from
there as they are. Needs neither netem nor a bridge. The program says `ready` on its standard output; the network lives as long as it.

Bounded: QUEUE_MAX packets on their way in each direction; more are dropped, as a full router would.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import shutil
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

NEAR, FAR = "10.213.0.1", "10.213.0.2"  # the servers' end and the clients'
MTU = 65000
QUEUE_MAX = 20_000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000


def missing() -> str:
    """Why there can be no such link here, or ""; tried in a network that ends with the trial."""
    for program, package in (("ip", "iproute2"), ("nsenter", "util-linux"), ("unshare", "util-linux")):
        if not shutil.which(program, path="/usr/sbin:/sbin:/usr/bin:/bin"):
            return f"{program} is not installed (Debian: {package})"
    trial = subprocess.run(["unshare", "-n", "ip", "tuntap", "add", "dev", "lab-trial", "mode", "tun"], capture_output=True, text=True)
    return "" if trial.returncode == 0 else f"no TUN devices here: {trial.stderr.strip()}"


def inside(pid: int) -> list[str]:
    """What a command begins with so that it runs in the network of that link's clients."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net"]


def serve(ms: float) -> None:
    near = device("lab-near")
    configure("lab-near", NEAR, FAR)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "no network of its own")
    far = device("lab-far")
    configure("lab-far", FAR, NEAR)
    # lo stays down here, so that no route of its own takes these addresses.
    ip("route", "add", "127.0.0.0/8", "dev", "lab-far", "src", FAR)
    print("ready", flush=True)
    forward(near, far, ms / 2000)


def device(name: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return fd


def configure(name: str, own: str, peer: str) -> None:
    ip("addr", "add", own, "peer", peer, "dev", name)
    ip("link", "set", name, "mtu", str(MTU), "txqueuelen", str(QUEUE_MAX), "up")
    for key, value in (("route_localnet", "1"), ("rp_filter", "0")):
        Path(f"/proc/sys/net/ipv4/conf/{name}/{key}").write_text(value)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def forward(a: int, b: int, delay: float) -> None:
    """Packets from each to the other, `delay` seconds later, in their order."""
    ways: dict[int, tuple[int, deque[tuple[float, bytes]]]] = {a: (b, deque()), b: (a, deque())}
    poll = select.poll()
    for fd in ways:
        poll.register(fd, select.POLLIN)
    while True:
        now = time.monotonic()
        due = [queue[0][0] for _, queue in ways.values() if queue]
        wait = min((max(0.0, d - now) for d in due), default=60.0)
        # poll counts whole milliseconds: what is due sooner is waited for by looking again.
        for fd, _ in poll.poll(int(wait * 1000)):
            _, queue = ways[fd]
            while len(queue) < QUEUE_MAX:
                try:
                    queue.append((time.monotonic() + delay, os.read(fd, MTU + 100)))
                except BlockingIOError:
                    break
        for to, queue in ways.values():
            now = time.monotonic()
            while queue and queue[0][0] <= now:
                try:
                    os.write(to, queue.popleft()[1])
                except OSError:
                    pass  # a packet that the other end does not take is lost, as packets are


if __name__ == "__main__":
    serve(float(sys.argv[1]))
