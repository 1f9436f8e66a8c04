"""The slow network between clients and servers: real TUN devices, in a network that ends with the test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab import link
from lab.studies.layouts import missing_delay

SCRIPT = """
import socket, sys, time
from pathlib import Path
from lab.process import Scratch, isolate

CLIENT = '''
import socket, time
c = socket.create_connection(("127.0.0.2", 5555), 60)
took = []
for _ in range(5):
    begun = time.monotonic()
    c.sendall(b"x")
    assert c.recv(1) == b"x"
    took.append(time.monotonic() - begun)
data = bytes(range(256)) * 4096 * 4
c.sendall(data)
got = b""
while len(got) < len(data):
    got += c.recv(1 << 20)
assert got == data
print(min(took))
'''
SERVER = '''
import socket
s = socket.create_server(("127.0.0.2", 5555))
print("listening", flush=True)
while True:
    c, _ = s.accept()
    while d := c.recv(65536):
        c.sendall(d)
'''
with Scratch(Path(sys.argv[1])) as scratch:
    assert not isolate(scratch, True)
    log = scratch.path / "server.log"
    scratch.spawn([sys.executable, "-c", SERVER], "server:echo", log=log)
    while not log.exists() or not log.read_text():
        time.sleep(0.05)
    with scratch.link(40.0) as prefix:
        far = scratch.run([*prefix, sys.executable, "-c", CLIENT], timeout=120).out
        here = scratch.run(["cat", "/proc/net/dev"]).out
    assert "lab-near" in here and "lab-near" not in scratch.run(["cat", "/proc/net/dev"]).out
    print(far)
"""


@pytest.mark.skipif(os.geteuid() != 0 or bool(link.missing()), reason=f"needs root and TUN devices: {link.missing() if os.geteuid() == 0 else 'no root'}")
def test_clients_behind_a_link_are_so_far_away_and_lose_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    # Never sooner than the round trip; how much later says only how busy the machine is.
    assert float(done.stdout) >= 0.040
    assert list(Path(tmp_path).iterdir()) == []


def test_without_a_network_of_its_own_there_is_no_delay():
    assert missing_delay(False) == "no network of its own to delay"
