"""Settings: what is wrong is named with file, line and key; profiles are whole."""

import pytest

from lab import config
from lab.backends import KINDS, parse
from lab.config import Config, ConfigError, expand, load, merge, restore
from lab.studies import KINDS as STUDIES


@pytest.mark.parametrize(
    "text, said",
    [
        ("[matrix]\nsize = 'big'\n", "f.toml:2: matrix.size: 'big' is no size"),
        ("[run]\n\nround = 3\n", "f.toml:3: run.round: no such setting; there are"),
        ("[matrixx]\n", "f.toml:1: matrixx: no such setting"),
        ("[run]\nrounds = 'three'\n", "f.toml:2: run.rounds: must be int, not str"),
        ("[run]\nrounds = true\n", "must be int"),
        ("[run]\nrounds = -1\n", "out of bounds"),
        ("[run]\nbackends = 'ceph'\n", "f.toml:2: run.backends: must be a list"),
        ("[run]\nbackends = [1]\n", "must be text"),
        ("run = 3\n", "f.toml:1: run: must be a table"),
        ("[matrix]\ngrid = [3]\n", "must be a table"),
        ("[matrix\n", "f.toml: "),
        ("[ceph]\nosd_size = 0\n", "no size"),
    ],
)
def test_a_wrong_setting_is_named_with_its_place(text, said):
    with pytest.raises(ConfigError) as e:
        merge(Config(), text, "f.toml")
    assert said in str(e.value)


def test_a_file_goes_over_the_profile(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text('[matrix]\nsize = "1G"\n[ceph]\nosds = 5\n')
    made = load("quick", file)
    assert (made.matrix.size, made.ceph.osds, made.skep.osds) == (1 << 30, 5, 3)
    assert made.matrix.grid == load("quick").matrix.grid


def test_a_file_that_is_missing_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load("quick", tmp_path / "none.toml")


@pytest.mark.parametrize("profile", config.PROFILES)
def test_profiles_name_what_there_is(profile):
    from dataclasses import asdict

    made = load(profile)
    for settings in (made.run, *(getattr(made, s) for s in STUDIES)):
        for name in settings.backends:
            parse(name)
    assert restore(asdict(made)) == made


def test_the_full_matrix_has_every_tenth_of_reads():
    from lab.studies.matrix import FACTORS

    cases = expand(load("full").matrix.grid, FACTORS, "matrix")
    assert {c["read"] for c in cases} == set(range(0, 101, 10))
    assert {c["depth"] for c in cases} == {1, 8, 32}
    assert min(c["bs"] for c in cases) == 4096 and max(c["bs"] for c in cases) == 4 << 20
    assert max(c["clients"] for c in cases) > 1


def test_grids_join_without_repetition_and_within_bounds():
    assert expand([{"a": [1, 2]}, {"a": [2], "b": [5]}, {"a": [2, 1]}], ("a", "b"), "s", {"b": 5}) == [{"a": 1, "b": 5}, {"a": 2, "b": 5}]
    with pytest.raises(ConfigError, match="no factor c"):
        expand([{"c": [1]}], ("a",), "s")
    with pytest.raises(ConfigError, match="more than"):
        expand([{"a": list(range(1000)), "b": list(range(1000))}], ("a", "b"), "s")


def test_back_ends_by_name():
    assert parse("ceph:2") == (KINDS["ceph"], 2)
    assert parse("file") == (KINDS["file"], 1)
    for wrong in ("cpeh", "ceph:0", "ceph:x", "file:2", "ceph:9", ""):
        with pytest.raises(ConfigError):
            parse(wrong)


def test_every_preset_has_settings_for_its_studies():
    from lab.config import PRESETS
    from lab.launch import Request, fresh

    for name, studies in PRESETS.items():
        _, config, options, _ = fresh(Request([], [], "quick", None, None, None, 0, 0.0, [], preset=name))
        assert options.studies == studies and config.run.backends and config.run.rounds >= 10
    assert fresh(Request([], [], "quick", None, None, None, 0, 0.0, [], preset="borges"))[1].layouts.depth == 64


@pytest.mark.parametrize(
    "grid, said",
    [
        ("{ bs = [4096], raed = [0] }", "matrix.grid: no factor raed; there are bs, read, depth, clients, hosts, delay"),
        ("{ bs = [4096], read = [150] }", "matrix.grid: read 150 is not from 0 to 100"),
        ("{ bs = [4096], read = ['half'] }", "matrix.grid: read half is not from 0 to 100"),
        ("{ bs = [4096], read = [true] }", "matrix.grid: read True is not from 0 to 100"),
        ("{ bs = [4096], read = [50.5] }", "matrix.grid: read 50.5 is not from 0 to 100"),
        ("{ bs = ['4X'] }", "matrix.grid: bs '4X' is no size"),
        ("{ bs = [] }", "matrix.grid: bs has no value"),
    ],
)
def test_a_wrong_grid_is_refused_with_the_settings(tmp_path, grid, said):
    """Before: a factor that is misspelt was found when servers had been started, and a text went into fio."""
    file = tmp_path / "c.toml"
    file.write_text(f"[matrix]\ngrid = [{grid}]\n")
    with pytest.raises(ConfigError) as e:
        load("quick", file)
    assert said in str(e.value)


def test_an_operation_that_is_none_is_refused(tmp_path):
    (tmp_path / "c.toml").write_text('[layouts]\ngrid = [{ op = ["wrte"], bs = [4096] }]\n')
    with pytest.raises(ConfigError, match="layouts.grid: op wrte is none of write, randwrite, read, randread"):
        load("quick", tmp_path / "c.toml")


def test_sizes_in_a_grid_may_be_text(tmp_path):
    (tmp_path / "c.toml").write_text('[matrix]\ngrid = [{ bs = ["4K", 8192, "1M"] }]\n')
    assert load("quick", tmp_path / "c.toml").matrix.grid == [{"bs": [4096, 8192, 1 << 20]}]


def test_the_table_of_factors_is_that_of_the_studies():
    from lab.studies import layouts, matrix

    assert set(config.GRID_FACTORS) == {s for s in STUDIES if hasattr(getattr(Config(), s), "grid")}
    assert config.GRID_FACTORS["matrix"] == (*matrix.FACTORS, "hosts", "delay") and config.GRID_FACTORS["layouts"] == (*layouts.FACTORS, "hosts")
    assert {f for factors in config.GRID_FACTORS.values() for f in factors} == set(config.FACTOR_BOUNDS) | set(config.FACTOR_NAMES)
