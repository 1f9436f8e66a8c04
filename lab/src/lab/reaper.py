"""`python -m lab.reaper SCRATCH MARK`: waits until its standard input ends, which the kernel does when the lab is gone
for whatever reason, and sweeps. Survives the signals that end the lab; does nothing else."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from lab.process import sweep


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    scratch, mark = Path(sys.argv[1]), sys.argv[2]
    while os.read(0, 4096):
        pass
    sweep(scratch, mark)


if __name__ == "__main__":
    main()
