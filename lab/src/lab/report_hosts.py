"""What each host of a site did: a table for each study, back end and case, a column for each host, medians over rounds. Only numbers, no verdicts."""

from __future__ import annotations

import json
import statistics
from typing import Any

from lab.records import HOST_METRICS, ByHost, Run
from lab.report_units import case_label, scale, significant

MAX_TABLES = 60  # of one study; the rest is in the raw data


def tables(run: Run, study: str, titles: dict[str, str], varying: list[str]) -> dict[str, Any]:
    """`titles`: back end -> its name for people; `varying`: the factors that tell cases apart."""
    found: dict[tuple[str, str], list[ByHost]] = {}
    for b in run.by_host:
        if b.study == study:
            found.setdefault((b.backend, json.dumps(b.case, sort_keys=True)), []).append(b)
    made = [_table(titles.get(name, name), own, varying) for (name, _), own in found.items()]
    return {"tables": made[:MAX_TABLES], "left_out": max(0, len(made) - MAX_TABLES)}


def _table(title: str, rounds: list[ByHost], varying: list[str]) -> dict[str, Any]:
    hosts = list(dict.fromkeys(h for r in rounds for h in r.hosts))
    values = {(h, m): [r.hosts[h][m] for r in rounds if m in r.hosts.get(h, {})] for h in hosts for m in HOST_METRICS}
    metrics = [m for m in HOST_METRICS if any(values[h, m] for h in hosts)]
    measures = []
    for m in metrics:
        unit, name = HOST_METRICS[m]
        divisor, shown = scale([statistics.median(values[h, m]) for h in hosts if values[h, m]], unit)
        measures.append((m, divisor, f"{name} [{shown}]" if shown else name))
    return {
        "title": f"{title}: {case_label(rounds[0].case, varying) or 'all'}",
        "rounds": len(rounds),
        "columns": hosts,
        "rows": [(text, [significant(statistics.median(values[h, m]) / d) if values[h, m] else "-" for h in hosts]) for m, d, text in measures],
    }  # fmt: skip
