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


def test_the_full_matrix_is_the_study_s():
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
