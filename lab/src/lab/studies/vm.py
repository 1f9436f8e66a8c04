"""What programs inside a VM get: sequential throughput, random IOPS, and iozone's pattern.

A measurement is a VM of its own: its disk is cloned, it boots, and one fio runs all operations of the work one after another on the region
behind the root file system, past the guest's page cache. `iozone` is iozone's automatic mode as Johari et al. ran it (-i 0 -i 1 -i 2 -I),
one operation in flight, by fio: iozone itself is not free software for Debian, and not in the guest. `seq` writes and reads the region once;
`rand` fills it first, then reads and writes at random for a time. Figures are the guest's own; servers are not accounted by operation.
"""

from __future__ import annotations

from lab import fio
from lab.backends import Backend, Disk
from lab.config import expand
from lab.guest import ROOT_BYTES
from lab.studies.base import BOOT_S, GUESSED_IOPS, GUESSED_RATE, Case, Result, Study
from lab.studies.boot import FIO_LIMIT_S, imported_base, round_up
from lab.vm import Machine

# Of a work: (operation, fio's name for it); an operation without a name prepares, and is not reported.
WORKS = {
    "iozone": (("write", "write"), ("rewrite", "write"), ("read", "read"), ("reread", "read"), ("randread", "randread"), ("randwrite", "randwrite")),
    "seq": (("write", "write"), ("read", "read")),
    "rand": (("", "write"), ("randread", "randread"), ("randwrite", "randwrite")),
}


class Vm(Study):
    name = "vm"

    def missing(self) -> list[str]:
        return self.guests.missing()

    def cases(self, backend: Backend) -> list[Case]:
        s = self.config.vm
        formats = ["rbd"] if "rbd" in backend.formats else [f for f in s.formats if f in backend.formats]
        grid = expand(s.grid, ("work", "bs", "depth"), self.name, {"work": "seq", "bs": 4096, "depth": 1})
        return [{"format": f, "accel": self.guests.accel(), **c} for f in formats for c in grid]

    def seconds(self, case: Case) -> float:
        s = self.config.vm
        times = {"iozone": 6 * s.size / case["bs"] / GUESSED_IOPS, "seq": 2 * s.size / GUESSED_RATE, "rand": s.size / GUESSED_RATE + 2 * s.runtime}
        return BOOT_S + times[case["work"]]

    def prepare(self, backend: Backend, case: Case) -> None:
        imported_base(self, backend)

    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]:
        s = self.config.vm
        disk = Disk(f"vm-{case['format']}{round}", ROOT_BYTES + s.size, case["format"])
        backend.clone(imported_base(self, backend), disk)
        words = command(case["work"], case["bs"], case["depth"], s.size, s.runtime, round)
        machine = Machine(self.scratch, self.guests.image(), case["accel"], self.config.guest.memory, backend.blockdev(disk), "fio", words, backend.client_env())
        try:
            with machine:
                machine.start()
                machine.wait_for("LAB up", self.config.guest.boot_limit)
                machine.wait_for("LAB done", FIO_LIMIT_S)
                raw = machine.between("LAB fio-begin", "LAB fio-end")
        finally:
            backend.remove(disk)
        return results(case, raw)


def command(work: str, bs: int, depth: int, size: int, runtime: float, seed: int) -> str:
    """fio's options as the guest's init takes them: commas between them, the first job named by the guest."""
    jobs = []
    for n, (op, rw) in enumerate(WORKS[work]):
        engine = f"ioengine=libaio,iodepth={depth}" if work != "iozone" else "ioengine=sync"
        block = bs if op else 1 << 20
        limit = f",time_based=1,runtime={round_up(runtime)}" if work == "rand" and op else ""
        head = f"name={op or 'fill'}{n},stonewall=1," if n else ""
        jobs.append(f"{head}filename=/dev/vda,direct=1,{engine},rw={rw},bs={block},offset={ROOT_BYTES},size={size - size % block},randseed={seed + 1}{limit}")
    return ",".join(jobs)


def results(case: Case, raw: str) -> list[Result]:
    """A result for each operation of the work, in the order of fio's jobs."""
    jobs, ops = fio.parse(raw)["jobs"], [op for op, _ in WORKS[case["work"]]]
    if len(jobs) != len(ops):
        raise fio.FioError(f"{len(jobs)} jobs in the guest's report, not {len(ops)}")
    return [Result({**case, "op": op}, fio.metrics({"jobs": [job]}), raw if n == len(ops) - 1 else "") for n, (op, job) in enumerate(zip(ops, jobs)) if op]
