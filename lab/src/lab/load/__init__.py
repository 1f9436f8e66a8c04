"""Load generators of the lab's own, for what fio does not do: each is a program (`python -m lab.load.s3 JSON`) that prints one JSON
document.

Vocabulary
    client   a process that does one operation after another; all begin together, behind a barrier
    spec     what a program is asked for, a JSON object; what it holds is said by each program
    load     what it answers with (Load)

Invariants: an operation that failed, or gave another content than was asked for, ends the whole load with a sentence and status 1, and is
never counted; latencies are of whole operations, from the call to the last byte, binned to three figures.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

READY_LIMIT_S = 60.0


class LoadError(Exception):
    """An operation did not do what it was asked; the message says which and why."""


@dataclass
class Load:
    began_ms: float  # by the wall's clock
    ended_ms: float
    operations: int
    bytes: int
    bins: dict[str, int]  # microseconds -> operations
    counts: list[int]  # operations of each client

    @property
    def seconds(self) -> float:
        return max(1e-9, (self.ended_ms - self.began_ms) / 1000)


# A client's work: number -> its operations, each done as it is asked for, with the bytes that it moved.
Work = Callable[[int], Iterator[int]]


def together(clients: int, seconds: float, work: Work, start: float = 0.0) -> Load:
    """All clients at once, not before `start` (by the wall's clock, for loads of several hosts), until their work is done or, where `seconds` is not 0,
    so long."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(clients)
    pipes = [context.Pipe(duplex=False) for _ in range(clients)]
    children = [context.Process(target=_client, args=(n, seconds, work, barrier, send, start)) for n, (_, send) in enumerate(pipes)]
    for child, (_, send) in zip(children, pipes):
        child.start()
        send.close()
    parts = []
    for receive, _ in pipes:
        try:
            parts.append(receive.recv())
        except EOFError:
            parts.append("a client ended without a word")
    for child in children:
        child.join()
    if wrong := [p for p in parts if isinstance(p, str)]:
        raise LoadError(next((w for w in wrong if w != BROKEN), wrong[0]))
    bins: Counter[str] = Counter()
    for p in parts:
        bins.update(p[3])
    return Load(min(p[0] for p in parts), max(p[1] for p in parts), sum(p[4] for p in parts), sum(p[2] for p in parts), dict(bins), [p[4] for p in parts])


BROKEN = "another client failed"


def _client(number: int, seconds: float, work: Work, barrier: Any, send: Any, start: float) -> None:
    try:
        operations = work(number)
        next(operations)  # to where it would begin: connected, with its data made
        barrier.wait(READY_LIMIT_S)
        time.sleep(min(READY_LIMIT_S, max(0.0, start - time.time())))
        bins: Counter[str] = Counter()
        moved = done = 0
        began, last = time.time() * 1000, time.monotonic_ns()
        end = last + seconds * 1e9 if seconds else float("inf")
        while last < end:
            size = next(operations, None)
            if size is None:
                break
            now = time.monotonic_ns()
            bins[f"{(now - last) / 1000:.3g}"] += 1
            moved, done, last = moved + size, done + 1, now
        send.send((began, time.time() * 1000, moved, dict(bins), done))
    except threading.BrokenBarrierError:
        send.send(BROKEN)
    except Exception as e:
        barrier.abort()
        send.send(f"{e}" if isinstance(e, LoadError) else f"{type(e).__name__}: {e}")


def main(load: Callable[[dict[str, Any]], Load]) -> None:
    try:
        print(json.dumps(asdict(load(json.loads(sys.argv[1])))))
    except (LoadError, OSError) as e:
        print(f"{e}", file=sys.stderr)
        sys.exit(1)


def parse(text: str) -> Load:
    """What a program printed."""
    return Load(**json.loads(text))
