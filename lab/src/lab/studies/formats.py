"""iozone's pattern over disk formats: write, rewrite, read, reread, and at random where asked for, with one record size, direct, one in flight.

Instruments: fio through QEMU's block layer for every format (the same path for raw, qcow2, QED and RBD); beside it iozone
itself, where it is installed, on back ends that are directories (raw only). The sample's case names the instrument.
With a time limit the later operations go over what the first write reached, so each touches written data.
"""

from __future__ import annotations

import shutil

from lab import fio, iozone
from lab.backends import Backend, Disk, Unsupported
from lab.qsd import Export
from lab.studies.base import GUESSED_RATE, START_S, Case, Result, Study

OPS = ("write", "rewrite", "read", "reread", "randread", "randwrite")


class Formats(Study):
    name = "formats"

    def cases(self, backend: Backend) -> list[Case]:
        settings = self.config.formats
        formats = [f for f in settings.formats if f in backend.formats]
        cases: list[Case] = [{"format": f, "record": int(r), "instrument": "fio"} for f in formats for r in settings.records]
        if shutil.which("iozone") and "raw" in formats and has_directory(backend):
            cases += [{"format": "raw", "record": int(r), "instrument": "iozone"} for r in settings.records]
        return cases

    def seconds(self, case: Case) -> float:
        s = self.config.formats
        return len(s.ops) * (START_S + (s.runtime or s.size / GUESSED_RATE))

    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]:
        if case["instrument"] == "iozone":
            return self._iozone(backend, case)
        disk = Disk(f"formats-{case['format']}", self.config.formats.size, case["format"])
        backend.create(disk)
        try:
            with Export(backend, disk) as export:
                return self._operations(backend, case, export.fio())
        finally:
            backend.remove(disk)

    def _operations(self, backend: Backend, case: Case, target: list[str]) -> list[Result]:
        settings, record = self.config.formats, case["record"]
        size = settings.size - settings.size % record
        results = []
        for op in settings.ops:
            argv = fio.command([target], rw=op if op.startswith("rand") else "read" if "read" in op else "write", bs=record, size=size)
            if settings.runtime:
                argv.append(f"--runtime={round_ms(settings.runtime)}ms")
            result = self.fio_result(backend, {**case, "op": op}, argv, settings.runtime or 3600, settings.runtime or size / GUESSED_RATE)
            if op == "write":
                size = max(record, fio.bytes_written(fio.parse(result.raw)))
            results.append(result)
        return results

    def _iozone(self, backend: Backend, case: Case) -> list[Result]:
        settings = self.config.formats
        file = backend.directory() / "iozone.tmp"
        argv = iozone.command(str(file), settings.size, case["record"], any(op.startswith("rand") for op in settings.ops))
        try:
            with self.accounted(backend) as accounting:
                done = self.scratch.run(argv, timeout=3600, role="load")
        finally:
            file.unlink(missing_ok=True)
        found = iozone.parse(done.out)
        return [Result({**case, "op": op}, {"bandwidth": found[op], **accounting.values}, done.out) for op in OPS if op in found and op in settings.ops]


def round_ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def has_directory(backend: Backend) -> bool:
    try:
        backend.directory()
    except Unsupported:
        return False
    return True
