"""Metadata of files in mounted directories: create, stat, readdir, rename, unlink, by clients that have a directory each.

Changes go through one mount; stat and readdir through a second one where the back end has it (CephFS, GlusterFS), whose caches are empty, so that
the server answers and not the first client's cache. With `flushed` each change is followed by an fsync of its directory: the metadata
server of CephFS answers before its journal is written, and only then is what is measured durable on both.
"""

from __future__ import annotations

import secrets
import shutil
from typing import Any

from lab.backends import Backend
from lab.backends.local import DirectoryBackend
from lab.config import expand
from lab.studies.base import START_S, Case, Result, Study

OPS = ("create", "stat", "readdir", "rename", "unlink")
CHANGES = ("create", "rename", "unlink")
LIMIT_S = 3600.0


class Metadata(Study):
    name = "metadata"
    needs = "files"

    def cases(self, backend: Backend) -> list[Case]:
        return expand(self.config.metadata.grid, ("files", "clients", "flushed"), self.name, {"files": 1000, "clients": 1, "flushed": "yes"})

    def seconds(self, case: Case) -> float:
        return len(OPS) * START_S + 3 * self.config.metadata.runtime

    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]:
        assert isinstance(backend, DirectoryBackend)
        s, word = self.config.metadata, f"metadata-{secrets.token_hex(4)}"
        here, there = backend.directory() / word, backend.elsewhere() / word
        here.mkdir()
        results, counts = [], []
        try:
            for op in OPS:
                spec: dict[str, Any] = {"directory": str(there if op in ("stat", "readdir") else here), "op": op, "clients": case["clients"], "counts": counts}
                spec |= {"files": case["files"], "seconds": s.runtime} if op == "create" else {"seconds": s.runtime} if op == "readdir" else {}
                spec["flush"] = op in CHANGES and case["flushed"] == "yes"
                values, raw, found = self.loaded(backend, "files", spec, LIMIT_S)
                values.pop("window_written", None)
                counts = found.counts if op == "create" else counts
                results.append(Result({**case, "op": op}, values, raw, self.curves_of(found, "write" if op in CHANGES else "read")))
        finally:
            shutil.rmtree(here, ignore_errors=True)
        return results
