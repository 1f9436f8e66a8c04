"""The lab's own load generators: signatures against Amazon's published examples, S3 against a small server of the test's own, files on
this machine's disk; and that whatever goes wrong is an error, never a figure."""

import json
import subprocess
import sys
import threading
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from lab import fio, load
from lab.load import files, s3

ACCESS, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize("query,signature", [
    ({"lifecycle": ""}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
    ({"max-keys": "2", "prefix": "J"}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
])  # fmt: skip
def test_requests_are_signed_as_amazon_documents(query, signature):
    now = datetime(2013, 5, 24, tzinfo=timezone.utc)
    headers = s3.sign("GET", "/", query, EMPTY, "examplebucket.s3.amazonaws.com", ACCESS, SECRET, now, {})
    assert headers["authorization"].endswith(f"SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={signature}")


class Bucket(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: dict = {}
    page = 3
    broken = ""

    def log_message(self, *_): ...

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.count("/") > 1:
            self.objects[self.path] = body[: -1 if self.broken == "short" else None]
        self.answer(503 if self.broken == "put" else 200, b"SlowDown")

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path in self.objects:
            return self.answer(200, self.objects[url.path])
        asked = parse_qs(url.query)
        keys = sorted(self.objects)
        first = int(asked.get("continuation-token", ["0"])[0])
        more = f"<NextContinuationToken>{first + self.page}</NextContinuationToken>" if first + self.page < len(keys) else ""
        self.answer(200, ("".join(f"<Key>{k}</Key>" for k in keys[first : first + self.page]) + more).encode())

    def do_DELETE(self):
        self.objects.pop(self.path, None)
        self.answer(204)


@pytest.fixture
def bucket(monkeypatch):
    monkeypatch.setattr(Bucket, "objects", {})
    monkeypatch.setattr(Bucket, "broken", "")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {"endpoint": f"127.0.0.1:{server.server_port}", "access": "a", "secret": "s", "bucket": "b", "size": 1000, "clients": 2}
    server.shutdown()


def test_objects_are_put_read_listed_and_deleted(bucket):
    made = s3.load({**bucket, "op": "put", "most": 4})
    assert made.counts == [4, 4] and made.operations == 8 and made.bytes == 8000 and len(Bucket.objects) == 8
    assert sum(made.bins.values()) == 8 and made.seconds > 0
    got = s3.load({**bucket, "op": "get", "counts": made.counts, "seconds": 0.2})
    assert got.operations > 2 and got.bytes == 1000 * got.operations
    assert s3.load({**bucket, "op": "list", "counts": made.counts, "seconds": 0.2}).operations >= 3
    assert s3.load({**bucket, "op": "delete", "counts": made.counts}).operations == 8 and not Bucket.objects


@pytest.mark.parametrize("broken,op,said", [("put", "put", "status 503: SlowDown"), ("short", "get", "999 bytes, not 1000"), ("", "list", "lists 2 keys of 5")])
def test_a_gateway_that_errs_gives_no_figure(bucket, broken, op, said, monkeypatch):
    Bucket.objects = {f"/b/{n}/0": b"x" * 999 for n in range(2)}
    Bucket.broken = broken
    with pytest.raises(load.LoadError, match=said):
        s3.load({**bucket, "op": op, "most": 2, "counts": [1, 4] if op == "list" else [1, 1], "seconds": 1.0})


def test_files_are_made_seen_renamed_and_removed(tmp_path):
    spec = {"directory": str(tmp_path), "clients": 2, "files": 20, "flush": True}
    made = files.load({**spec, "op": "create"})
    assert made.counts == [20, 20] and len(list((tmp_path / "1").iterdir())) == 20
    spec["counts"] = made.counts
    assert files.load({**spec, "op": "stat"}).operations == 40
    assert files.load({**spec, "op": "readdir", "seconds": 0.1}).operations >= 2
    assert files.load({**spec, "op": "rename"}).operations == 40 and (tmp_path / "0/r19").exists()
    assert files.load({**spec, "op": "unlink"}).operations == 40 and not list((tmp_path / "0").iterdir())


def test_files_that_are_not_there_give_no_figure(tmp_path):
    (tmp_path / "0").mkdir()
    with pytest.raises(load.LoadError, match="lists 0 names of 3"):
        files.load({"directory": str(tmp_path), "clients": 1, "op": "readdir", "counts": [3], "seconds": 1.0})
    with pytest.raises(load.LoadError, match="FileNotFoundError"):
        files.load({"directory": str(tmp_path), "clients": 1, "op": "stat", "counts": [3]})


def test_the_program_prints_its_load_or_says_why_not(tmp_path):
    def run(**spec):
        return subprocess.run([sys.executable, "-m", "lab.load.files", json.dumps({"directory": str(tmp_path), "clients": 1, **spec})], capture_output=True, text=True)

    found = load.parse(run(op="create", files=5).stdout)
    assert found.operations == 5
    failed = run(op="stat", counts=[9])
    assert failed.returncode == 1 and not failed.stdout and "No such file" in failed.stderr


def test_latencies_out_of_bins():
    bins = {float(n): 100 for n in range(1, 101)}
    found = fio.latencies_of(bins)
    assert found["latency_p50"] == 50 and found["latency_p99"] == 99 and found["latency_p999"] == 100 and found["latency_mean"] == 50.5
    assert "latency_p999" not in fio.latencies_of({5.0: 100})
