"""Settings: a built-in profile (quick or full) under a TOML file of the user's, checked key by key.

Invariants: profiles and the user's file have the same form and pass the same checks; an unknown key, a wrong type or a
value out of bounds is one sentence with file, line and key; sizes are integers or text such as "256M" (powers of 1024).
"""

from __future__ import annotations

import itertools
import re
import tomllib
import typing
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
CASES_MAX = 100_000  # of one study's grid
PROFILES = ("quick", "night", "full")
# `--study`: the work of a published study, named after its first author; a profile of that name, and the studies that it takes.
PRESETS = {"oliveira": ["boot"], "johari": ["formats", "vm"], "ding": ["provision", "vm", "migrate"], "ra": ["matrix"], "borges": ["layouts"]}
# What a factor of a grid may be; a wrong one is refused before any server starts.
FACTOR_BOUNDS = {
    "bs": (512, 1 << 30), "read": (0, 100), "depth": (1, 4096), "clients": (1, 256), "vms": (1, 1000), "hosts": (1, 200), "threads": (1, 1024),
    "image": (0, 1 << 44), "object": (1, 5 << 30), "files": (1, 1_000_000), "stripe_unit": (4096, 1 << 30), "stripe_count": (1, 1000), "delay": (0, 10_000),
}

# The factors of each study's grid; of ON_SITES only with --site.
GRID_FACTORS = {
    "matrix": ("bs", "read", "depth", "clients", "hosts", "delay"),
    "vm": ("work", "bs", "depth"),
    "provision": ("vms", "hosts", "image"),
    "layouts": ("op", "bs", "stripe_unit", "stripe_count", "threads", "delay", "hosts"),
    "metadata": ("files", "clients", "flushed", "hosts"),
    "objects": ("object", "clients"),
}
ON_SITES = {"matrix": ("hosts", "delay"), "layouts": ("hosts",), "metadata": ("hosts",)}
SIZE_FACTORS = ("bs", "stripe_unit", "image", "object")  # that may be written as text, such as "64K"

FORMAT_OPS = ("write", "rewrite", "read", "reread", "randread", "randwrite")
FACTOR_NAMES = {"work": ("iozone", "seq", "rand"), "flushed": ("yes", "no"), "op": ("write", "randwrite", "read", "randread")}


class ConfigError(Exception):
    """One sentence for the user."""


class Size(int):
    """A number of bytes."""


@dataclass
class RunSettings:
    backends: list[str] = field(default_factory=list)
    rounds: int = 3
    scratch: str = "/var/tmp"
    out: str = "runs"
    durable: bool = False  # every write flushed: O_DSYNC, or a flush after each, where the back end does not flush by itself
    network: bool = False  # stay in the host's network, for servers that already run elsewhere
    site: str = ""  # the file of --site
    turn: float = 100.0  # seconds for which a lock (--lock) is kept at a stretch
    failures_max: int = 2  # failed measurements in a row until a back end is given up


@dataclass
class CephSettings:
    conf: str = ""  # of a running cluster; the lab starts one where it is empty
    pool: str = ""  # of that cluster, for images of the lab's own names; where it is empty the lab makes a pool
    user: str = "admin"  # the client's name to that cluster, without `client.`
    osds: int = 3
    osd_size: Size = Size(16 << 30)
    osd_memory: Size = Size(1 << 30)
    rbd_cache: bool = False


@dataclass
class SkepSettings(CephSettings):
    bin: str = ""
    osd_memory: Size = Size(256 << 20)


@dataclass
class MountSettings:
    path: str = ""  # a directory where the storage is mounted already
    acknowledged: str = "cached"  # when it answers a write: flushed, sent, cached


@dataclass
class LvmSettings:
    size: Size = Size(8 << 30)


@dataclass
class GuestSettings:
    accel: str = "auto"  # auto, kvm, tcg
    kvm_trial: float = 15.0
    memory: Size = Size(256 << 20)
    boot_limit: float = 180.0


@dataclass
class StudySettings:
    backends: list[str] = field(default_factory=list)  # instead of those of [run]
    rounds: int = 0  # instead of that of [run]


@dataclass
class MatrixSettings(StudySettings):
    grid: list[dict[str, list[Any]]] = field(default_factory=list)
    size: Size = Size(256 << 20)
    ramp: float = 0.5
    runtime: float = 2.0


@dataclass
class BootSettings(StudySettings):
    size: Size = Size(1 << 30)
    runtime: float = 0.0  # seconds of fio in the guest; 0 writes the whole size
    formats: list[str] = field(default_factory=lambda: ["qcow2"])


@dataclass
class VmSettings(StudySettings):
    grid: list[dict[str, list[Any]]] = field(default_factory=list)
    size: Size = Size(1 << 30)
    runtime: float = 10.0  # of each random operation
    formats: list[str] = field(default_factory=lambda: ["qcow2"])


@dataclass
class FormatsSettings(StudySettings):
    size: Size = Size(1 << 30)
    runtime: float = 0.0  # at most so long for one operation; 0: the whole size
    records: list[Size] = field(default_factory=list)
    formats: list[str] = field(default_factory=lambda: ["raw", "qcow2", "qed", "rbd"])
    ops: list[str] = field(default_factory=lambda: ["write", "rewrite", "read", "reread"])


@dataclass
class ProvisionSettings(StudySettings):
    grid: list[dict[str, list[Any]]] = field(default_factory=list)
    disk_size: Size = Size(1 << 30)
    boot: bool = True


@dataclass
class MigrateSettings(StudySettings):
    disk_size: Size = Size(1 << 30)
    written: Size = Size(128 << 20)  # data on the disk that has to move with local storage
    limit: float = 300.0


@dataclass
class LayoutsSettings(StudySettings):
    grid: list[dict[str, list[Any]]] = field(default_factory=list)
    size: Size = Size(128 << 20)
    depth: int = 1  # operations in flight of each thread
    ramp: float = 0.3
    runtime: float = 2.0


@dataclass
class ObjectsSettings(StudySettings):
    grid: list[dict[str, list[Any]]] = field(default_factory=list)
    runtime: float = 3.0  # of put, get and list each
    volume: Size = Size(256 << 20)  # what is put at most, all clients together


@dataclass
class MetadataSettings(StudySettings):
    grid: list[dict[str, list[Any]]] = field(default_factory=list)
    runtime: float = 3.0  # of create and readdir each, at most


@dataclass
class FailureSettings(StudySettings):
    faults: list[str] = field(default_factory=lambda: ["kill", "hang"])
    size: Size = Size(128 << 20)
    bs: Size = Size(4096)
    depth: int = 4
    rate: int = 400  # operations per second offered, so that back ends of unlike speed see the same load
    before: float = 3.0
    outage: float = 5.0  # until the victim is started again, or wakes
    after: float = 10.0  # at most this long until I/O flows again
    recover_limit: float = 60.0


@dataclass
class Config:
    run: RunSettings = field(default_factory=RunSettings)
    skep: SkepSettings = field(default_factory=SkepSettings)
    ceph: CephSettings = field(default_factory=CephSettings)
    mount: MountSettings = field(default_factory=MountSettings)
    lvm: LvmSettings = field(default_factory=LvmSettings)
    guest: GuestSettings = field(default_factory=GuestSettings)
    matrix: MatrixSettings = field(default_factory=MatrixSettings)
    boot: BootSettings = field(default_factory=BootSettings)
    vm: VmSettings = field(default_factory=VmSettings)
    formats: FormatsSettings = field(default_factory=FormatsSettings)
    provision: ProvisionSettings = field(default_factory=ProvisionSettings)
    migrate: MigrateSettings = field(default_factory=MigrateSettings)
    layouts: LayoutsSettings = field(default_factory=LayoutsSettings)
    objects: ObjectsSettings = field(default_factory=ObjectsSettings)
    metadata: MetadataSettings = field(default_factory=MetadataSettings)
    failure: FailureSettings = field(default_factory=FailureSettings)


def load(profile: str, file: Path | None = None) -> Config:
    config = Config()
    text = resources.files("lab").joinpath(f"profiles/{profile}.toml").read_text()
    merge(config, text, f"profile {profile}")
    if file is not None:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"{file}: {getattr(e, 'strerror', None) or 'not text'}") from e
        merge(config, text, str(file))
    if unknown := [op for op in config.formats.ops if op not in FORMAT_OPS]:
        raise ConfigError(f"formats.ops: {', '.join(unknown)} is none of {', '.join(FORMAT_OPS)}")
    for study, factors in GRID_FACTORS.items():
        for grid in getattr(config, study).grid:
            _check_grid(study, factors, grid)
    return config


def _check_grid(study: str, factors: tuple[str, ...], grid: dict[str, list[Any]]) -> None:
    """Whatever is wrong in it is said before any server starts; sizes in text become numbers."""
    if unknown := [f for f in grid if f not in factors]:
        raise ConfigError(f"{study}.grid: no factor {', '.join(unknown)}; there are {', '.join(factors)}")
    for factor, values in grid.items():
        if factor in SIZE_FACTORS:
            values[:] = [_size_in_grid(study, factor, v) if isinstance(v, str) else v for v in values]
        if not values:
            raise ConfigError(f"{study}.grid: {factor} has no value")
        if names := FACTOR_NAMES.get(factor):
            if unknown := [v for v in values if v not in names]:
                raise ConfigError(f"{study}.grid: {factor} {', '.join(map(str, unknown))} is none of {', '.join(names)}")
            continue
        low, high = FACTOR_BOUNDS[factor]
        kinds = (int, float) if factor == "delay" else (int,)
        if wrong := [v for v in values if type(v) not in kinds or not low <= v <= high]:
            raise ConfigError(f"{study}.grid: {factor} {', '.join(map(str, wrong))} is not from {low:g} to {high:g}")


def _size_in_grid(study: str, factor: str, value: str) -> int:
    try:
        return int(parse_size(value, _Place("", "", ())))
    except ConfigError:
        raise ConfigError(f'{study}.grid: {factor} {value!r} is no size; examples: 4096, "64K", "1M"') from None


def check_without_site(config: Config, studies: list[str]) -> None:
    """Factors that only a site has."""
    for study in studies:
        if alone := [f for f in ON_SITES.get(study, ()) if any(f in grid for grid in getattr(config, study).grid)]:
            raise ConfigError(f"{study}.grid: {' and '.join(alone)} {'is' if len(alone) == 1 else 'are'} of hosts over ssh: give --site FILE")


def merge(config: Config, text: str, source: str) -> None:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise ConfigError(f"{source}: {e}") from e
    _fill(config, data, _Place(source, text, ()))


def restore(data: dict[str, Any]) -> Config:
    """The settings out of a run's head, where `asdict` put them."""
    config = Config()
    _fill(config, data, _Place("the run's head", "", ()))
    return config


@dataclass(frozen=True)
class _Place:
    """Where a value stands, for messages."""

    source: str
    text: str
    path: tuple[str, ...]

    def at(self, key: str) -> _Place:
        return _Place(self.source, self.text, (*self.path, key))

    def error(self, problem: str) -> ConfigError:
        return ConfigError(f"{self.source}:{self._line()}: {'.'.join(self.path)}: {problem}")

    def _line(self) -> int:
        """The line of the key, looked for below its table's header."""
        section, here = "", 1
        for number, line in enumerate(self.text.splitlines(), 1):
            if m := re.match(r"\s*\[+\s*([\w.\-]+)\s*\]+", line):
                section = m.group(1)
                if section == self.path[0]:
                    here = number
                    if len(self.path) == 1:
                        return number
            elif m := re.match(r"\s*([\w.\-]+)\s*=", line):
                if len(self.path) > 1 and (section, m.group(1)) == (self.path[0], self.path[1]):
                    return number
                if section == "" and m.group(1).split(".")[0] == self.path[0]:
                    return number
        return here


def _fill(target: Any, data: dict[str, Any], place: _Place) -> None:
    hints = typing.get_type_hints(type(target))
    known = {f.name for f in fields(target)}
    for key, value in data.items():
        here = place.at(key)
        if key not in known:
            raise here.error(f"no such setting; there are {', '.join(sorted(known))}")
        current = getattr(target, key)
        if is_dataclass(current):
            if not isinstance(value, dict):
                raise here.error("must be a table")
            _fill(current, value, here)
        else:
            setattr(target, key, _checked(hints[key], value, here))


def _checked(kind: Any, value: Any, place: _Place) -> Any:
    origin = typing.get_origin(kind)
    if origin is list:
        if not isinstance(value, list):
            raise place.error("must be a list")
        item = typing.get_args(kind)[0]
        return [_checked(item, v, place) for v in value]
    if origin is dict:
        if not isinstance(value, dict):
            raise place.error("must be a table")
        return {k: _checked(typing.get_args(kind)[1], v, place) for k, v in value.items()}
    if kind is Any:
        return value
    if kind is Size:
        return parse_size(value, place)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        raise place.error(f"must be {'text' if kind is str else kind.__name__}, not {type(value).__name__}")
    if kind in (int, float) and not 0 <= value < 1e15:
        raise place.error(f"{value} is out of bounds")
    return value


def parse_size(value: Any, place: _Place) -> Size:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return Size(value)
    m = re.fullmatch(r"\s*(\d{1,12})\s*([KMGT]?)(i?B)?\s*", value) if isinstance(value, str) else None
    if not m or int(m.group(1)) == 0:
        raise place.error(f"{value!r} is no size; examples: 4096, \"64K\", \"1G\"")
    return Size(int(m.group(1)) * UNITS[m.group(2)])


def expand(grids: list[dict[str, list[Any]]], factors: tuple[str, ...], study: str, defaults: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """All cases of a union of grids, each once, in order: {"bs": ["4K"], "read": [0, 100]} gives two."""
    cases: list[dict[str, Any]] = []
    for grid in grids:
        if unknown := set(grid) - set(factors):
            raise ConfigError(f"{study}.grid: no factor {', '.join(sorted(unknown))}; there are {', '.join(factors)}")
        full = {f: grid.get(f, [(defaults or {}).get(f, 1)]) for f in factors}
        count = 1
        for values in full.values():
            count *= len(values)
        if count > CASES_MAX:
            raise ConfigError(f"{study}.grid: {count} cases are more than {CASES_MAX}")
        for values in itertools.product(*full.values()):
            case = dict(zip(full, values))
            if case not in cases:
                cases.append(case)
    return cases
