"""The commands from outside: help, lists, errors of the user's making."""

import json
import subprocess
import sys

import pytest


def lab(*args, cwd=None):
    return subprocess.run([sys.executable, "-c", "from lab.cli import main; main()", *args], capture_output=True, text=True, cwd=cwd)


def test_list_as_json(tmp_path):
    found = json.loads(lab("list", "-f", "json", cwd=tmp_path).stdout)
    assert {"matrix", "boot", "vm", "formats", "provision", "migrate", "layouts", "metadata", "objects", "failure"} == {s["name"] for s in found["studies"]}
    assert {"skep", "skep-hosts", "skep-fs", "skep-s3", "ceph", "cephfs", "rgw", "gluster", "gluster-gfapi", "file", "block", "nfs", "lvm", "mount"} == {b["name"] for b in found["backends"]}
    assert found["runs"] == []


def test_check_says_why_what_is_missing_is_missing():
    found = json.loads(lab("check", "-f", "json").stdout)
    assert set(found) == {"backends", "studies", "instruments"}
    assert all(isinstance(row["missing"], list) for part in found.values() for row in part.values())


def test_version():
    done = lab("--version")
    assert done.returncode == 0 and done.stdout.startswith("lab 0.")


def test_a_dry_run_counts_and_starts_nothing(tmp_path):
    (tmp_path / "night").mkdir()
    (tmp_path / "c.toml").write_text(f'[run]\nrounds = 4\nscratch = "{tmp_path}/scratch"\n[matrix]\nruntime = 2.0\nramp = 0.5\n'
                                     "grid = [{ bs = [4096], read = [0, 100], depth = [1] }]\n")
    done = lab("run", "matrix", "--backends", "file:1", "-c", "c.toml", "--dry-run", "-f", "json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert done.returncode == 0 and (found["measurements"], found["rows"][0]["cases"]) == (8, 2)
    # 8 times 2.5 s of fio and 1.5 s around it, and the start.
    assert found["seconds"] == 8 * 4.0 + 10.0
    assert not (tmp_path / "runs").exists() and list((tmp_path / "scratch").iterdir()) == []


def test_text_in_brackets_and_colons_is_shown_as_it_is(tmp_path):
    """The terminal library took [skep] for a style and :x: for a picture."""
    done = lab("plan", "[skep]:x:.toml", cwd=tmp_path)
    assert "[skep]:x:.toml" in done.stderr


@pytest.mark.parametrize(
    "args, said",
    [
        (["run"], "which study?"),
        (["run", "matrx"], "no study 'matrx'"),
        (["run", "--study", "smith"], "no study of 'smith'; there are oliveira"),
        (["run", "boot", "--study", "oliveira"], "--study brings its studies"),
        (["run", "matrix", "--backends", "cehp"], "no back end 'cehp'"),
        (["run", "matrix", "--backends", "file:3"], "file is measured with 1 copies"),
        (["run", "matrix", "--quick", "--full"], "--quick and --full exclude each other"),
        (["run", "matrix", "--config", "grid.toml"], "matrix.grid: read 150 is not from 0 to 100"),
        (["run", "matrix", "--config", "hosts.toml"], "matrix.grid: hosts is of hosts over ssh: give --site FILE"),
        (["report", ".", "--reference", "a", "--all-pairs"], "exclude each other"),
        (["run", "matrix", "--config", "missing.toml"], "No such file"),
        (["run", "matrix", "--resume", "nowhere"], "settings from the run itself"),
        (["run", "--resume", "nowhere"], "No such file"),
    ],
)
def test_errors_of_the_user_s_are_one_sentence_and_status_2(tmp_path, args, said):
    (tmp_path / "grid.toml").write_text("[matrix]\ngrid = [{ bs = [4096], read = [150], depth = [1] }]\n")
    (tmp_path / "hosts.toml").write_text("[matrix]\ngrid = [{ bs = [4096], hosts = [1, 2] }]\n")
    done = lab(*args, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["grid.toml", "hosts.toml"]
