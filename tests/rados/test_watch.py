"""Watch and notify between separate client processes, and the list of watchers."""
import os
import re
import signal
import subprocess

import pytest

from skeptest.run import end_group, wait_until


class Watcher:
    """A `rados watch` process; ends when its standard input gets a line."""

    def __init__(self, cluster, pool, oid, out):
        self.out = out
        self.file = open(out, 'wb')
        self.proc = cluster.popen('stdbuf', '-oL', 'rados', '-p', pool, 'watch', oid, stdin=subprocess.PIPE,
                                  stdout=self.file, stderr=self.file)

    def said(self):
        return self.out.read_text(errors='replace')

    def leave(self):
        self.proc.stdin.write(b'\n')
        self.proc.stdin.close()
        assert self.proc.wait(60) == 0, self.said()

    def kill(self):
        end_group(self.proc)
        self.proc.wait(60)
        self.file.close()


def watchers(cluster, pool, oid):
    return cluster.rados(pool, 'listwatchers', oid).out.splitlines()


def test_notify_reaches_all_watchers_and_collects_their_answers(cluster, pool, oid, tmp_path):
    cluster.rados(pool, 'put', oid, '-', stdin=b'x')
    all_ = [Watcher(cluster, pool, oid, tmp_path / ('w%d' % i)) for i in range(2)]
    try:
        lines = wait_until(lambda: len(w := watchers(cluster, pool, oid)) == 2 and w, what='two watchers')
        for line in lines:
            assert re.fullmatch(r'watcher=127\.0\.0\.1:0/\d+ client\.\d+ cookie=\d+', line), line
        out = cluster.rados(pool, 'notify', oid, 'hi').out
        assert len(re.findall(r'reply client\.\d+ cookie \d+ : 6 bytes', out)) == 2, out
        for w in all_:
            wait_until(lambda: 'NOTIFY cookie' in w.said(), 60, what='the notification')
        all_[0].leave()
        wait_until(lambda: len(watchers(cluster, pool, oid)) == 1, what='one watcher left')
        out = cluster.rados(pool, 'notify', oid, 'again').out
        assert len(re.findall(r'reply client', out)) == 1, out
    finally:
        for w in all_:
            w.kill()


def test_notify_without_watchers_returns_at_once(cluster, pool, oid):
    cluster.rados(pool, 'put', oid, '-', stdin=b'x')
    assert 'reply' not in cluster.rados(pool, 'notify', oid, 'hi', timeout=8).out


def test_watch_needs_the_object(cluster, pool):
    r = cluster.rados(pool, 'watch', 'no-such-object', stdin=b'\n', check=1)
    assert '(2) No such file or directory' in r.err, r


@pytest.mark.own
def test_the_doctor_names_a_watcher_that_does_not_answer(own):
    """As with an RBD image's lock: who asked waits, and the one that holds it is named with its address."""
    skep = own(osds=1).start()
    pool = skep.make_pool()
    skep.rados(pool, 'put', 'o', '-', stdin=b'x')
    watcher = skep.popen('rados', '-p', pool, 'watch', 'o', stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: 'watcher=' in skep.rados(pool, 'listwatchers', 'o').out, 60, what='the watch')
        held = re.search(r'watcher=(\S+) client\.(\d+)', skep.rados(pool, 'listwatchers', 'o').out)
        os.kill(watcher.pid, signal.SIGSTOP)
        asking = skep.popen('rados', '-p', pool, 'notify', 'o', 'hello', stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def found():
            out = skep.cli('doctor', '--data', skep.data).out
            return out if 'watcher client.' + held.group(2) in out else None
        said = wait_until(found, 60, 0.3, 'the doctor to say so')
        address = held.group(1).split('/')[0]
        assert address in said and 'ceph osd blocklist add' in said and '(since ' in said, said
        end_group(asking)
    finally:
        end_group(watcher)
