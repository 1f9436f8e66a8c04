"""What stays on clusters that the lab did not start: found again, removed where that is allowed, and named where not."""

import json
import os

import pytest
from lab import ledger
from lab.ledger import Stay
from lab.process import ToolError


class Cluster:
    """As stock tools show one; `deletes`: whether its monitors let pools be deleted."""

    def __init__(self, deletes=True, pools=None):
        self.deletes, self.pools, self.up = deletes, pools or {}, True

    def run(self, argv):
        if not self.up:
            raise ToolError("ceph: no end within 60 s")
        program, _, _, *words = argv
        return getattr(self, program)([w for w in words if not w.startswith("--")])

    def ceph(self, words):
        if words[:3] == ["osd", "pool", "ls"]:
            return "\n".join(self.pools)
        assert words[:3] == ["osd", "pool", "rm"] and words[3] == words[4]
        if not self.deletes:
            raise ToolError("ceph osd pool rm: status 1: pool deletion is disabled; you must first set mon_allow_pool_delete")
        if words[3] not in self.pools:
            raise ToolError("status 2: pool does not exist")
        del self.pools[words[3]]
        return ""

    def rbd(self, words):
        if words[0] == "ls":
            return "\n".join(self.pools[words[1]])
        pool, _, name = words[-1 if words[0] != "snap" or words[1] != "ls" else 2].partition("/")
        name, _, snap = name.partition("@")
        image = self.pools[pool][name]
        if words[:2] == ["snap", "ls"]:
            return json.dumps([{"name": s, "protected": "true"} for s in image["snaps"]])
        if words[:2] == ["snap", "unprotect"] and any(i["parent"] == name for i in self.pools[pool].values()):
            raise ToolError("status 16: snapshot has clones")
        if words[:2] == ["snap", "rm"]:
            image["snaps"].remove(snap)
        if words[0] == "rm":
            del self.pools[pool][name]
        return ""


def image(snaps=(), parent=""):
    return {"snaps": list(snaps), "parent": parent}


@pytest.fixture
def noted(tmp_path):
    scratch = tmp_path / "lab-x"
    scratch.mkdir()
    return lambda stay: ledger.note(scratch, "abc", stay)


def test_a_pool_of_the_labs_goes_with_all_in_it(noted):
    cluster = Cluster(pools={"lab-abc-3": {"base": image(["base"]), "vm": image(parent="base")}, "vms": {"theirs": image()}})
    entry = noted(Stay("/etc/ceph/ceph.conf", "lab-abc-3", ""))
    assert entry.path.exists()
    assert ledger.remove(entry, cluster.run) == ""
    assert list(cluster.pools) == ["vms"] and not entry.path.exists()


def test_a_cluster_that_lets_nobody_delete_pools(noted):
    """Its default. The run ended in a traceback, with no report, and the pool stayed with its data."""
    cluster = Cluster(deletes=False, pools={"lab-abc-3": {"disk": image()}})
    entry = noted(Stay("/etc/ceph/ceph.conf", "lab-abc-3", ""))
    said = ledger.remove(entry, cluster.run)
    assert "pool lab-abc-3 on the cluster of /etc/ceph/ceph.conf could not be removed" in said and "mon_allow_pool_delete" in said
    assert "by hand: ceph -c /etc/ceph/ceph.conf" in said
    # The data went, and what stays is known.
    assert cluster.pools == {"lab-abc-3": {}} and entry.path.exists()
    cluster.deletes = True
    assert ledger.remove(entry, cluster.run) == "" and not entry.path.exists()


def test_in_a_pool_of_others_only_the_labs_images_go(noted):
    cluster = Cluster(deletes=False, pools={"vms": {"lab-abc-base": image(["base"]), "lab-abc-vm": image(parent="lab-abc-base"), "lab-other": image(), "vm1": image(["daily"])}})
    assert ledger.remove(noted(Stay("c", "vms", "lab-abc-")), cluster.run) == ""
    assert sorted(cluster.pools["vms"]) == ["lab-other", "vm1"]


def test_what_somebody_has_cloned_stays_and_is_named(noted):
    cluster = Cluster(pools={"vms": {"lab-abc-base": image(["base"]), "theirs": image(parent="lab-abc-base")}})
    said = ledger.remove(noted(Stay("c", "vms", "lab-abc-")), cluster.run)
    assert "images lab-abc-* of pool vms" in said and "has clones" in said and "theirs" in cluster.pools["vms"]


def test_a_cluster_that_does_not_answer_keeps_its_entry(noted):
    cluster = Cluster(pools={"lab-abc-3": {}})
    cluster.up = False
    entry = noted(Stay("c", "lab-abc-3", ""))
    assert "no end within 60 s" in ledger.remove(entry, cluster.run) and entry.path.exists()


def test_a_pool_that_is_gone_needs_nothing(noted):
    entry = noted(Stay("c", "lab-abc-3", ""))
    cluster = Cluster()
    cluster.rbd = lambda words: (_ for _ in ()).throw(ToolError("status 2: no such pool"))
    assert ledger.remove(entry, cluster.run) == "" and not entry.path.exists()


def test_entries_of_a_lab_that_lives_are_left_alone(noted, tmp_path):
    first, second = noted(Stay("c", "a", "")), noted(Stay("c", "b", ""))
    assert first.path != second.path and ledger.abandoned(tmp_path) == []
    data = json.loads(second.path.read_text())
    assert data["pid"] == os.getpid()
    second.path.write_text(json.dumps({**data, "started": "1"}))
    (tmp_path / "lab-cluster-x-0.json").write_text("{")
    assert [e.stay for e in ledger.abandoned(tmp_path)] == [Stay("c", "b", "")]


def test_a_cluster_that_does_not_answer_is_said_at_once(tmp_path):
    def run(argv):
        asked.append(argv)
        raise ToolError("ceph -c: status 1: error connecting to the cluster")

    asked = []
    entry = ledger.note(tmp_path / "lab-x", "m", ledger.Stay("/c/ceph.conf", "p", "", ("ssh", "h")))
    assert ledger.Stay("/c/ceph.conf", "p", "", ("ssh", "h")) == entry.stay
    said = ledger.silent(entry, run)
    assert "does not answer" in said and str(entry.path) in said and len(asked) == 1 and "--connect-timeout" in asked[0]
    assert ledger.silent(entry, lambda argv: "") == ""
    # How the host is reached is kept, and commands go there as one line.
    ledger.over_ssh(entry.stay.ssh, lambda argv: asked.append(argv) or "")(["rbd", "ls", "a b"])
    assert asked[-1] == ["ssh", "h", "--", "rbd ls 'a b'"]
