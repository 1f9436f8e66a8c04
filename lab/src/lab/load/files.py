"""Metadata of files by system calls: create, stat, readdir, rename, unlink; each client in a directory of its own.

Spec: directory, op, clients, seconds (0: until the work is done), files (that a client creates at most), counts (files of each client, where
there are some), flush (whether each change is followed by an fsync of its directory, so that its answer means that it is durable), start (not before that, by the
wall's clock).
`stat` takes files in random order; one `readdir` lists a client's whole directory, and its names are counted.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

from lab.load import Load, LoadError, main, together


def load(spec: dict[str, Any]) -> Load:
    work = {"create": creates, "stat": stats, "readdir": readdirs, "rename": renames, "unlink": unlinks}[spec["op"]]
    return together(spec["clients"], spec.get("seconds", 0.0), lambda n: work(spec, f"{spec['directory']}/{n}", n), spec.get("start", 0.0))


class Flush:
    """An fsync of the directory where it is asked for."""

    def __init__(self, spec: dict[str, Any], home: str) -> None:
        self.fd = os.open(home, os.O_RDONLY | os.O_DIRECTORY) if spec.get("flush") else -1

    def __call__(self) -> None:
        if self.fd >= 0:
            os.fsync(self.fd)


def creates(spec: dict[str, Any], home: str, number: int) -> Iterator[int]:
    os.mkdir(home)
    flush = Flush(spec, home)
    yield 0
    for n in range(spec["files"]):
        os.close(os.open(f"{home}/{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        flush()
        yield 0


def stats(spec: dict[str, Any], home: str, number: int) -> Iterator[int]:
    order = list(range(spec["counts"][number]))
    random.Random(number).shuffle(order)
    yield 0
    for n in order:
        os.stat(f"{home}/{n}")
        yield 0


def readdirs(spec: dict[str, Any], home: str, number: int) -> Iterator[int]:
    there = spec["counts"][number]
    yield 0
    while True:
        if (seen := len(os.listdir(home))) != there:
            raise LoadError(f"{home} lists {seen} names of {there}")
        yield 0


def renames(spec: dict[str, Any], home: str, number: int) -> Iterator[int]:
    flush = Flush(spec, home)
    yield 0
    for n in range(spec["counts"][number]):
        os.rename(f"{home}/{n}", f"{home}/r{n}")
        flush()
        yield 0


def unlinks(spec: dict[str, Any], home: str, number: int) -> Iterator[int]:
    """Of what `renames` left."""
    flush = Flush(spec, home)
    yield 0
    for n in range(spec["counts"][number]):
        os.unlink(f"{home}/r{n}")
        flush()
        yield 0


if __name__ == "__main__":
    main(load)
