"""Names that come and go: a tree of one worker's, each of whose calls has one right outcome; and names for which several race."""
import errno
import os
import random
import stat
import time

NAMES = 12


def asked(call, *args):
    """A folder that another mount has moved keeps its old place in this one's kernel until ceph-fuse has it forgotten; whoever comes upon
    it by the new one under a lock gets ESTALE, which no server was asked for (a ceph-mds' clients have it, too)."""
    for _ in range(100):
        try:
            return call(*args)
        except OSError as e:
            if e.errno != errno.ESTALE:
                raise
            time.sleep(0.05)
    return call(*args)


def is_there(path):
    """`os.path.lexists` takes each failure for a no."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


class Inode:
    def __init__(self, kind, data=b''):
        self.kind, self.data, self.mode, self.attr, self.links = kind, data, None, None, 1


class Tree:
    """A folder that only this worker changes, through one mount or another. Invariant: what a call came to is what the model says, so
    a request that a client sends a second time, after the server has died, must not fail by its own first outcome."""

    def __init__(self, roots, seed):
        self.roots, self.random, self.seed = roots, random.Random(seed), seed
        os.mkdir(roots[0])
        self.dirs, self.nodes, self.done = [''], {}, 0

    def step(self, _=None):
        calls = [self.make, self.mkdir, self.link, self.symlink, self.rename, self.rename, self.unlink, self.rmdir, self.change, self.look]
        call = self.random.choice(calls)
        try:
            call(self.random.choice(self.roots))
        except (OSError, AssertionError) as e:
            raise AssertionError('seed %d, step %d, %s: %r' % (self.seed, self.done, call.__name__, e))
        self.done += 1

    def place(self):
        d = self.random.choice(self.dirs)
        name = 'n%d' % self.random.randrange(NAMES)
        return d + '/' + name if d else name

    def pick(self, *kinds):
        all_ = [p for p, n in self.nodes.items() if n.kind in kinds]
        return self.random.choice(sorted(all_)) if all_ else None

    @staticmethod
    def refused(number, call, *args):
        try:
            asked(call, *args)
        except OSError as e:
            assert e.errno == number, e
            return
        raise AssertionError('it was not refused')

    def new(self, path, node, call, *args):
        if path in self.nodes:
            return self.refused(errno.EEXIST, call, *args)
        asked(call, *args)
        self.nodes[path] = node
        if node.kind == 'dir':
            self.dirs.append(path)

    def make(self, root):
        path, data = self.place(), self.random.randbytes(self.random.choice([0, 10, 70000]))

        def write():
            with open(root / path, 'xb') as f:
                f.write(data)
        self.new(path, Inode('file', data), write)

    def mkdir(self, root):
        path = self.place()
        if path.count('/') < 4 and len(self.dirs) < 30:
            self.new(path, Inode('dir'), os.mkdir, root / path)

    def symlink(self, root):
        path, text = self.place(), 'to/%d' % self.random.randrange(1000)
        self.new(path, Inode('symlink', text), os.symlink, text, root / path)

    def link(self, root):
        old, new = self.pick('file'), self.place()
        if old:
            is_new = new not in self.nodes
            self.new(new, self.nodes[old], os.link, root / old, root / new)
            self.nodes[old].links += is_new

    def unlink(self, root):
        path = self.pick('file', 'symlink')
        if path:
            asked(os.unlink, root / path)
            self.nodes.pop(path).links -= 1

    def inside(self, path):
        return [p for p in self.nodes if p.startswith(path + '/')]

    def rmdir(self, root):
        path = self.pick('dir')
        if path and self.inside(path):
            self.refused(errno.ENOTEMPTY, os.rmdir, root / path)
        elif path:
            asked(os.rmdir, root / path)
            self.gone(path)

    def gone(self, path):
        node = self.nodes.pop(path)
        node.links -= 1
        if node.kind == 'dir':
            self.dirs.remove(path)

    def rename(self, root):
        old, new = self.pick('file', 'dir', 'symlink'), self.place()
        if not old or old == new:
            return
        node, there = self.nodes[old], self.nodes.get(new)
        why = self.why_not(old, new, node, there)
        if why:
            return self.refused(why, os.rename, root / old, root / new)
        asked(os.rename, root / old, root / new)
        if there is node:
            return
        if there:
            self.gone(new)
        moved = {p: self.nodes.pop(p) for p in [old, *self.inside(old)]}
        self.nodes.update({new + p[len(old):]: n for p, n in moved.items()})
        self.dirs = [new + d[len(old):] if d == old or d.startswith(old + '/') else d for d in self.dirs]

    def why_not(self, old, new, node, there):
        if new.startswith(old + '/'):
            return errno.EINVAL
        if there is None:
            return None
        if there.kind == 'dir' and old.startswith(new + '/'):
            return errno.ENOTEMPTY
        if node.kind == 'dir' and there.kind != 'dir':
            return errno.ENOTDIR
        if node.kind != 'dir' and there.kind == 'dir':
            return errno.EISDIR
        return errno.ENOTEMPTY if there.kind == 'dir' and self.inside(new) else None

    def change(self, root):
        path = self.pick('file', 'dir')
        if path:
            node = self.nodes[path]
            node.mode, node.attr = self.random.choice([0o700, 0o755, 0o640]), self.random.randbytes(20)
            asked(os.chmod, root / path, node.mode)
            asked(os.setxattr, root / path, 'user.a', node.attr)

    def look(self, root):
        path = self.place()
        assert asked(is_there, root / path) == (path in self.nodes), path

    def compare(self, root):
        """What is there, against the model."""
        found = set()
        for folder, dirs, files in os.walk(root):
            found |= {os.path.relpath(os.path.join(folder, n), root) for n in dirs + files}
        assert found == set(self.nodes), found ^ set(self.nodes)
        inodes = {}
        for path, node in self.nodes.items():
            s = asked(os.lstat, root / path)
            kind = {stat.S_IFDIR: 'dir', stat.S_IFREG: 'file', stat.S_IFLNK: 'symlink'}[stat.S_IFMT(s.st_mode)]
            assert kind == node.kind, path
            assert inodes.setdefault(id(node), s.st_ino) == s.st_ino, path
            if kind == 'symlink':
                assert asked(os.readlink, root / path) == node.data
                continue
            assert node.mode is None or stat.S_IMODE(s.st_mode) == node.mode, path
            assert node.attr is None or os.getxattr(root / path, 'user.a') == node.attr, path
            if kind == 'file':
                assert s.st_nlink == node.links, path
                assert (root / path).read_bytes() == node.data, path
        return len(found)

    def sums(self):
        """Bytes, files (with symbolic links) and subdirectories (itself included), as a directory's recursive statistics count them."""
        files = {id(n): n for n in self.nodes.values() if n.kind != 'dir'}.values()
        return (sum(len(n.data) for n in files if n.kind == 'file'), len(files), len(self.dirs))


def race(folder, seed, rounds):
    """Makes, links, renames and removes a few names for which others do the same. What a call comes to may be either of several. What
    is renamed is there for certain: ceph-fuse 16.2 waits for ever for a rename that has failed (ceph/ceph pull request 40787)."""
    r, may = random.Random(seed), (errno.ENOENT, errno.EEXIST)
    for i in range(rounds):
        a, b = (folder / ('r%d' % r.randrange(6)) for _ in range(2))
        try:
            what = r.randrange(4)
            if what == 0:
                with open(a, 'xb') as f:
                    f.write(b'%d-%d' % (seed, i))
            elif what == 1:
                os.link(a, b)
            elif what == 2:
                own = folder / ('own%d' % seed)
                os.link(a, own)
                os.rename(own, b)
                # Two names of one inode: both stay.
                if os.path.lexists(own):
                    os.unlink(own)
            else:
                os.unlink(a)
        except OSError as e:
            assert e.errno in may, e


def consistent(folder):
    """Each inode has as many links as names, and the directory counts its names."""
    names = os.listdir(folder)
    by_ino = {}
    for n in names:
        s = os.stat(folder / n)
        by_ino.setdefault(s.st_ino, []).append(s.st_nlink)
    for ino, counts in by_ino.items():
        assert set(counts) == {len(counts)}, (hex(ino), counts)
    assert int(os.getxattr(folder, 'ceph.dir.files')) == len(names)
    return sorted(names)
