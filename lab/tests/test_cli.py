"""The commands from outside: help, lists, errors of the user's making."""

import json
import subprocess
import sys

import pytest


def lab(*args, cwd=None):
    return subprocess.run([sys.executable, "-c", "from lab.cli import main; main()", *args], capture_output=True, text=True, cwd=cwd)


def test_list_as_json(tmp_path):
    found = json.loads(lab("list", "-f", "json", cwd=tmp_path).stdout)
    assert {"matrix", "boot", "formats", "provision", "migrate", "layouts", "failure"} == {s["name"] for s in found["studies"]}
    assert {"skep", "skep-hosts", "ceph", "cephfs", "gluster", "gluster-gfapi", "file", "block", "nfs", "lvm"} == {b["name"] for b in found["backends"]}
    assert found["runs"] == []


def test_check_says_why_what_is_missing_is_missing():
    found = json.loads(lab("check", "-f", "json").stdout)
    assert set(found) == {"backends", "studies", "instruments"}
    assert all(isinstance(row["missing"], list) for part in found.values() for row in part.values())


@pytest.mark.parametrize(
    "args, said",
    [
        (["run"], "which study?"),
        (["run", "matrx"], "no study 'matrx'"),
        (["run", "matrix", "--backends", "cehp"], "no back end 'cehp'"),
        (["run", "matrix", "--backends", "file:3"], "file is measured with 1 copies"),
        (["run", "matrix", "--quick", "--full"], "exclude each other"),
        (["run", "matrix", "--config", "missing.toml"], "No such file"),
        (["run", "matrix", "--resume", "nowhere"], "settings from the run itself"),
        (["run", "--resume", "nowhere"], "No such file"),
    ],
)
def test_errors_of_the_user_s_are_one_sentence_and_status_2(tmp_path, args, said):
    done = lab(*args, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
