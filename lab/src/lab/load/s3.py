"""Objects over S3 (signature V4, path style, plain HTTP): put, get, list, delete.

Spec: endpoint ("HOST:PORT"), access, secret, bucket, op, size [B], clients, seconds (0: until the work is done), most (objects that a
client puts at most), counts (objects of each client, where there are some). Also `make` and `remove` of a bucket, alone. A client keeps its connection; its objects are
`NUMBER/COUNT` and all of the same random bytes, whose sum is in the signature. One `list` is a page of up to 1,000 keys.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import random
import re
import urllib.parse
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from lab.load import Load, LoadError, main, together

REGION = "us-east-1"
LIMIT_S = 120.0
PAGE = 1000


class Client:
    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.host = spec, spec["endpoint"]
        self.connection = http.client.HTTPConnection(self.host, timeout=LIMIT_S)
        self._keys: dict[str, bytes] = {}

    def request(self, method: str, path: str, query: dict[str, str] | None = None, body: bytes = b"", digest: str = "") -> bytes:
        """The answer's body; a status of another kind than 2xx is an error."""
        words = sign(method, path, query or {}, digest or hashlib.sha256(body).hexdigest(), self.host, self.spec["access"], self.spec["secret"], datetime.now(timezone.utc), self._keys)
        text = canonical(query or {})
        self.connection.request(method, path + (f"?{text}" if text else ""), body=body if method == "PUT" else None, headers=words)
        answer = self.connection.getresponse()
        content = answer.read()
        if not 200 <= answer.status < 300:
            raise LoadError(f"{method} {path}: status {answer.status}: {content[:200].decode('utf-8', 'replace')}")
        return content


def canonical(query: dict[str, str]) -> str:
    quoted = sorted((urllib.parse.quote(k, safe="-_.~"), urllib.parse.quote(v, safe="-_.~")) for k, v in query.items())
    return "&".join(f"{k}={v}" for k, v in quoted)


def sign(method: str, path: str, query: dict[str, str], digest: str, host: str, access: str, secret: str, now: datetime, keys: dict[str, bytes]) -> dict[str, str]:
    """Headers of a signed request; `keys` keeps a day's signing key."""
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    signed = ";".join(headers)
    request = "\n".join([method, urllib.parse.quote(path, safe="/-_.~"), canonical(query), *(f"{k}:{v}" for k, v in headers.items()), "", signed, digest])
    scope = f"{day}/{REGION}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    if day not in keys:
        key = f"AWS4{secret}".encode()
        for word in (day, REGION, "s3", "aws4_request"):
            key = hmac.digest(key, word.encode(), "sha256")
        keys[day] = key
    signature = hmac.digest(keys[day], text.encode(), "sha256").hex()
    return headers | {"authorization": f"AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={signed}, Signature={signature}"}


def load(spec: dict[str, Any]) -> Load:
    bucket = f"/{spec['bucket']}"
    if spec["op"] in ("make", "remove"):
        Client(spec).request("PUT" if spec["op"] == "make" else "DELETE", bucket)
        return Load(0.0, 0.0, 1, 0, {}, [1])
    work = {"put": puts, "get": gets, "list": lists, "delete": deletes}[spec["op"]]
    return together(spec["clients"], spec.get("seconds", 0.0), lambda n: work(spec, bucket, n))


def puts(spec: dict[str, Any], bucket: str, number: int) -> Iterator[int]:
    client, body = _connected(spec), os.urandom(spec["size"])
    digest = hashlib.sha256(body).hexdigest()
    yield 0
    for n in range(spec["most"]):
        client.request("PUT", f"{bucket}/{number}/{n}", body=body, digest=digest)
        yield len(body)


def gets(spec: dict[str, Any], bucket: str, number: int) -> Iterator[int]:
    client, chosen = _connected(spec), random.Random(number)
    yield 0
    while True:
        key = f"{bucket}/{number}/{chosen.randrange(spec['counts'][number])}"
        if len(got := client.request("GET", key)) != spec["size"]:
            raise LoadError(f"GET {key}: {len(got)} bytes, not {spec['size']}")
        yield len(got)


def lists(spec: dict[str, Any], bucket: str, number: int) -> Iterator[int]:
    client, there = _connected(spec), sum(spec["counts"])
    yield 0
    while True:
        seen, token = 0, ""
        while True:
            query = {"list-type": "2", "max-keys": str(PAGE)} | ({"continuation-token": token} if token else {})
            text = client.request("GET", bucket, query).decode()
            seen += text.count("<Key>")
            found = re.search("<NextContinuationToken>([^<]*)<", text)
            token = found.group(1).replace("&amp;", "&") if found else ""
            if not token and seen != there:
                raise LoadError(f"the bucket lists {seen} keys of {there}")
            yield len(text)
            if not token:
                break


def deletes(spec: dict[str, Any], bucket: str, number: int) -> Iterator[int]:
    client = _connected(spec)
    yield 0
    for n in range(spec["counts"][number]):
        client.request("DELETE", f"{bucket}/{number}/{n}")
        yield 0


def _connected(spec: dict[str, Any]) -> Client:
    client = Client(spec)
    client.connection.connect()
    return client


if __name__ == "__main__":
    main(load)
