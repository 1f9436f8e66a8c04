"""Metadata of files in mounted directories: create, stat, readdir, rename, unlink, by clients that have a directory each.

Changes go through one mount; stat and readdir through a second one where the back end has it (CephFS, GlusterFS), whose caches are empty, so that
the server answers and not the first client's cache. With `flushed` each change is followed by an fsync of its directory: the metadata
server of CephFS answers before its journal is written, and only then is what is measured durable on both.

With a site `hosts` client hosts work at once, each with so many `clients`; stat and readdir then go over what the next host has made. The generator is
sent there, and needs python3.
"""

from __future__ import annotations

import secrets
import shutil
from typing import Any

from lab.backends import Backend
from lab.config import expand
from lab.records import Curves
from lab.studies.base import START_S, Case, Result, Study

OPS = ("create", "stat", "readdir", "rename", "unlink")
CHANGES = ("create", "rename", "unlink")
LOOKS = ("stat", "readdir")
LIMIT_S = 3600.0


class Metadata(Study):
    name = "metadata"
    over_site = True
    needs = "files"

    def cases(self, backend: Backend) -> list[Case]:
        factors, defaults = ("files", "clients", "flushed"), {"files": 1000, "clients": 1, "flushed": "yes"}
        if not self.context.site:
            return expand(self.config.metadata.grid, factors, self.name, defaults)
        there = len(self.context.site.file.clients)
        return [c for c in expand(self.config.metadata.grid, (*factors, "hosts"), self.name, {**defaults, "hosts": there}) if c["hosts"] <= there]

    def seconds(self, case: Case) -> float:
        return len(OPS) * START_S + 3 * self.config.metadata.runtime

    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]:
        if self.context.site:
            return self._over_site(backend, case)
        s, word = self.config.metadata, f"metadata-{secrets.token_hex(4)}"
        here, there = backend.directory() / word, backend.elsewhere() / word
        here.mkdir()
        results, counts = [], []
        try:
            for op in OPS:
                spec = self._spec(op, case, str(there if op in LOOKS else here), counts)
                values, raw, found = self.loaded(backend, "files", spec, LIMIT_S)
                values.pop("window_written", None)
                counts = found.counts if op == "create" else counts
                results.append(Result({**case, "op": op}, values, raw, self.curves_of(found, "write" if op in CHANGES else "read")))
        finally:
            shutil.rmtree(here, ignore_errors=True)
        return results

    def _spec(self, op: str, case: Case, directory: str, counts: list[int]) -> dict[str, Any]:
        seconds = self.config.metadata.runtime
        spec: dict[str, Any] = {"directory": directory, "op": op, "clients": case["clients"], "counts": counts}
        spec |= {"files": case["files"], "seconds": seconds} if op == "create" else {"seconds": seconds} if op == "readdir" else {}
        return {**spec, "flush": op in CHANGES and case["flushed"] == "yes"}

    def _over_site(self, backend: Backend, case: Case) -> list[Result]:
        """A look at what another host made finds nothing of it in the own host's caches; of one host alone it is its own."""
        site, hosts = self.context.site, range(case["hosts"])
        site.slow(0)
        site.send_generators()
        home = backend.directory() / f"metadata-{secrets.token_hex(4)}"
        self.scratch.run(["mkdir", "-p", *(f"{home}/{n}" for n in hosts)])
        results, counts = [], [[] for _ in hosts]
        try:
            for op in OPS:
                whose = [(n + 1) % len(hosts) if op in LOOKS else n for n in hosts]
                result, found = self.site_generator(backend, "files", [self._spec(op, case, f"{home}/{n}", counts[n]) for n in whose], LIMIT_S)
                counts = [one.counts for one in found] if op == "create" else counts
                if op in CHANGES and result.curves:
                    result.curves = Curves({"write": result.curves.distribution["read"]}, 1.0, [])
                result.case = {**case, "op": op}
                results.append(result)
        finally:
            self.scratch.run(["rm", "-rf", "--one-file-system", "--", str(home)], timeout=LIMIT_S, check=False)
        return results
