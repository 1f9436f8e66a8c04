"""An `ssh` for fast tests: runs what it is given on this machine, with an environment of its own as a login has. Put first in PATH by
`install`. A host whose address stands as a file in the directory FAKE_SSH is not there ("cut": from now on; "silent": it never answers)."""

import os
import sys
import time
from pathlib import Path


def install(directory: Path, monkeypatch) -> Path:
    """The directory of hosts that are not there."""
    bin, hosts = directory / "bin", directory / "hosts"
    bin.mkdir()
    hosts.mkdir()
    ssh = bin / "ssh"
    ssh.write_text(f"#!/bin/sh\nexec {sys.executable} -S -E {__file__} \"$@\"\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SSH", str(hosts))
    return hosts


def main() -> None:
    words, socket, master, target = sys.argv[1:], "", False, ""
    with_value = {"-o", "-p", "-i", "-S"}
    while words and words[0] != "--" and not target:
        word = words.pop(0)
        if word in with_value:
            value = words.pop(0)
            socket = value if word == "-S" else socket
        elif word == "-M":
            master = True
        elif not word.startswith("-"):
            target = word
    command = words[1:] if words[:1] == ["--"] else words
    absent = Path(os.environ["FAKE_SSH"]) / target.rpartition("@")[2]
    if absent.exists():
        if absent.read_text() == "silent":
            time.sleep(1000)
        print(f"ssh: connect to host {absent.name} port 22: No route to host", file=sys.stderr)
        sys.exit(255)
    if master:
        Path(socket).touch()
        while not absent.exists() and os.getppid() != 1:
            time.sleep(0.05)
        print(f"Timeout, server {absent.name} not responding.", file=sys.stderr)
        sys.exit(255)
    env = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "USER", "LANG", "FAKE_TOOLS")}
    os.execve("/bin/bash", ["bash", "-c", " ".join(command)], env)


if __name__ == "__main__":
    main()
