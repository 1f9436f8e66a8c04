"""Objects over S3: put, get, list, delete, over their size and the number of clients.

A measurement has a bucket of its own, so that none finds the index of another: clients put objects until the time is over or the volume is
reached, get them at random, list the bucket page by page, delete every object. The generator is the lab's own (lab.load.s3), the same for all
gateways; its processor time is the clients'. What was deleted goes later (gc_wait_s of the back ends), within other measurements.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import Any

from lab.backends import Backend
from lab.backends.s3 import S3Backend
from lab.config import expand
from lab.studies.base import START_S, Case, Result, Study

OPS = ("put", "get", "list", "delete")
LIMIT_S = 3600.0


class Objects(Study):
    name = "objects"
    needs = "objects"

    def cases(self, backend: Backend) -> list[Case]:
        return expand(self.config.objects.grid, ("object", "clients"), self.name, {"object": 4096, "clients": 1})

    def seconds(self, case: Case) -> float:
        s = self.config.objects
        return len(OPS) * START_S + 3 * s.runtime + s.runtime / 2

    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]:
        assert isinstance(backend, S3Backend) and backend.account
        s, size = self.config.objects, case["object"]
        spec: dict[str, Any] = {
            "endpoint": backend.account.endpoint, "access": backend.account.access, "secret": backend.account.secret,
            "bucket": f"lab-{round}-{secrets.token_hex(4)}", "size": size, "clients": case["clients"],
        }  # fmt: skip
        self.scratch.run(self.generator("s3", {**spec, "op": "make"}))
        results, counts = [], []
        try:
            for op in OPS:
                bound = {"put": {"seconds": s.runtime, "most": max(1, s.volume // size // case["clients"])}, "delete": {}}.get(op, {"seconds": s.runtime})
                values, raw, found = self.loaded(backend, "s3", {**spec, "op": op, "counts": counts, **bound}, LIMIT_S)
                if op == "put":
                    counts = found.counts
                    values["write_amplification"] = values.pop("window_written", 0.0) / found.bytes
                values.pop("window_written", None)
                if op in ("put", "get"):
                    values["bandwidth"] = found.bytes / found.seconds
                results.append(Result({**case, "op": op}, values, raw, self.curves_of(found, "write" if op in ("put", "delete") else "read")))
        except BaseException:
            with contextlib.suppress(Exception):  # the bucket goes with its gateway
                self.scratch.run(self.generator("s3", {**spec, "op": "delete", "counts": counts}), timeout=LIMIT_S)
            raise
        finally:
            with contextlib.suppress(Exception):
                self.scratch.run(self.generator("s3", {**spec, "op": "remove"}))
        return results
