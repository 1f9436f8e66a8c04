"""iozone: its command line, and its table turned into bytes per second.

The table's header names the columns in one or two lines above the figures; a column is taken by its place, which iozone
keeps: size, record, write, rewrite, read, reread, random read, random write. Figures are KB/s of 1,024 bytes.
"""

from __future__ import annotations

import re

COLUMNS = ("write", "rewrite", "read", "reread", "randread", "randwrite")


class IozoneError(Exception):
    """iozone ran, but its output has no figures."""


def command(file: str, size: int, record: int, random: bool = False) -> list[str]:
    """Direct I/O (-I), write and rewrite (-i 0), read and reread (-i 1), at random (-i 2); the study's automatic mode measured record by record."""
    return ["iozone", "-I", "-i", "0", "-i", "1", *(["-i", "2"] if random else []), "-s", f"{size // 1024}k", "-r", f"{record // 1024}k", "-f", file]


def parse(text: str) -> dict[str, float]:
    """Bytes per second by operation, of the one line of figures."""
    if re.search(r"^\s*(Error|Can ?not open|open: )", text, re.M | re.I):
        raise IozoneError(f"iozone failed: {text.strip()[-200:]}")
    if not re.search(r"\brewrite\b", text):
        raise IozoneError("no table in iozone's output")
    for line in text[text.rindex("rewrite"):].splitlines()[1:]:
        words = line.split()
        if len(words) >= 4 and all(w.isdigit() for w in words):
            figures = [int(w) for w in words[2:]]
            return {name: float(value * 1024) for name, value in zip(COLUMNS, figures)}
    raise IozoneError("no figures below iozone's header")
