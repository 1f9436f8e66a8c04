"""Images of format 1, which stock clients of 16.2 still make where RBD_FORCE_ALLOW_V1 is set: their names lie in a
trivial map in the data of `rbd_directory`, their snapshots in the data of the header. What the commands say is what they
said to a real 16.2.15, word by word, but for ids, addresses, times and librbd's log."""
import re
import shlex

import pytest

from skeptest.cluster import unique
from skeptest.images import MIB, Images, pattern, sha

SIZE = 9000000
IMPORTED = 'rbd: image format 1 is deprecated\nImporting image: 100% complete...done.\n= 0\n'

CREATE = r"""
$ create --image-format 1 --size 8M POOL/one
rbd: image format 1 is deprecated
= 0
$ create --image-format 1 --size 8M POOL/one
rbd: image format 1 is deprecated
rbd: create error: (17) File exists
= 17
$ create --image-format 1 --size 20M --order 20 POOL/a-first
rbd: image format 1 is deprecated
rbd: --order is deprecated, use --object-size
= 0
$ create --image-format 1 --size 8M --image-feature layering POOL/x
rbd: image format 1 is deprecated
rbd: features not allowed with format 1; use --image-format 2
= 22
$ create --size 8M POOL/new
= 0
$ ls POOL
a-first
one
new
= 0
$ ls -l POOL
NAME     SIZE    PARENT  FMT  PROT  LOCK
a-first  20 MiB            1
one       8 MiB            1
new       8 MiB            2
= 0
$ ls -l --format json POOL
[{"image":"a-first","id":"","size":20971520,"format":1},{"image":"one","id":"","size":8388608,"format":1},{"image":"new","id":"ID","size":8388608,"format":2}]
= 0
$ info POOL/one
rbd image 'one':
	size 8 MiB in 2 objects
	order 22 (4 MiB objects)
	snapshot_count: 0
	block_name_prefix: rb.X
	format: 1
= 0
$ info --format json POOL/one
{"name":"one","id":"","size":8388608,"objects":2,"order":22,"object_size":4194304,"snapshot_count":0,"block_name_prefix":"rb.X","format":1}
= 0
$ status POOL/one
Watchers: none
= 0
$ resize --size 12M POOL/one
Resizing image: 100% complete...done.
= 0
$ resize --size 5M POOL/one
rbd: shrinking an image is only allowed with the --allow-shrink flag
= 22
$ resize --size 5M --allow-shrink POOL/one
Resizing image: 100% complete...done.
= 0
$ info POOL/one
rbd image 'one':
	size 5 MiB in 2 objects
	order 22 (4 MiB objects)
	snapshot_count: 0
	block_name_prefix: rb.X
	format: 1
= 0
"""

RENAME = r"""
$ rename POOL/one POOL/uno
= 0
$ rename POOL/uno POOL/a-first
rbd: rename error: (17) File exists
= 17
$ rename POOL/uno POOL/new
rbd: rename error: (17) File exists
= 17
$ rename POOL/new POOL/uno
rbd: rename error: (17) File exists
= 17
$ rename POOL/one POOL/x
rbd: rename error: (2) No such file or directory
= 2
$ info POOL/one
rbd: error opening image one: (2) No such file or directory
= 2
$ info POOL/uno
rbd image 'uno':
	size 5 MiB in 2 objects
	order 22 (4 MiB objects)
	snapshot_count: 0
	block_name_prefix: rb.X
	format: 1
= 0
$ ls POOL
a-first
uno
new
= 0
"""

REMOVE = r"""
$ rm POOL/one
Removing image: complete...failed.
rbd: delete error: (2) No such file or directory
= 2
$ rm POOL/uno
Removing image: 100% complete...done.
= 0
$ rm POOL/uno
Removing image: complete...failed.
rbd: delete error: (2) No such file or directory
= 2
$ ls POOL
a-first
new
= 0
$ rm POOL/a-first
Removing image: 100% complete...done.
= 0
$ rm POOL/new
Removing image: 100% complete...done.
= 0
$ ls POOL
= 0
"""

SNAPSHOTS = r"""
$ snap create POOL/one@s
Creating snap: complete...failed.
rbd: failed to create snapshot: (17) File exists
= 17
$ snap create POOL/one@t
Creating snap: 100% complete...done.
= 0
$ snap ls POOL/one
SNAPID  NAME  SIZE     PROTECTED  TIMESTAMP
SNAP  s     8.6 MiB
SNAP  t     8.6 MiB
= 0
$ ls -l POOL
NAME   SIZE     PARENT  FMT  PROT  LOCK
one    8.6 MiB            1
one@s  8.6 MiB            1
one@t  8.6 MiB            1
= 0
$ info POOL/one@s
rbd image 'one':
	size 8.6 MiB in 3 objects
	order 22 (4 MiB objects)
	snapshot_count: 2
	block_name_prefix: rb.X
	format: 1
	protected: False
= 0
$ snap rename POOL/one@t POOL/one@u
= 0
$ snap rename POOL/one@s POOL/one@u
rbd: renaming snap failed: (17) File exists
= 17
$ snap ls POOL/one
SNAPID  NAME  SIZE     PROTECTED  TIMESTAMP
SNAP  s     8.6 MiB
SNAP  u     8.6 MiB
= 0
$ snap ls --format json POOL/one
[{"id":SNAP,"name":"s","size":9000000,"protected":"false","timestamp":""},{"id":SNAP,"name":"u","size":9000000,"protected":"false","timestamp":""}]
= 0
$ diff POOL/one --from-snap s
Offset   Length   Type
1048576  1048576  data
= 0
$ du POOL/one
NAME     PROVISIONED  USED
one@s        8.6 MiB  8.6 MiB
one@u        8.6 MiB    4 MiB
one          8.6 MiB      0 B
<TOTAL>      8.6 MiB   13 MiB
warning: fast-diff map is not enabled for one. operation may be slow.
= 0
$ snap rm POOL/one@t
Removing snap: complete...failed.
rbd: failed to remove snapshot: (2) No such file or directory
= 2
"""

ROLLBACK = r"""
$ snap rollback POOL/one@s
Rolling back to snapshot: 100% complete...done.
= 0
$ snap limit set POOL/one --limit 2
= 0
$ snap create POOL/one@v
Creating snap: complete...failed.
rbd: failed to create snapshot: (122) Disk quota exceeded
= 122
$ snap limit clear POOL/one
= 0
$ snap create POOL/one@v
Creating snap: 100% complete...done.
= 0
$ snap rm POOL/one@s
Removing snap: 100% complete...done.
= 0
$ rm POOL/one
Removing image: complete...failed.
rbd: image has snapshots - these must be deleted with 'rbd snap purge' before the image can be removed.
= 39
$ snap ls POOL/one
SNAPID  NAME  SIZE     PROTECTED  TIMESTAMP
SNAP  u     8.6 MiB
SNAP  v     8.6 MiB
= 0
$ snap purge POOL/one
Removing all snapshots: 100% complete...done.
= 0
$ snap ls POOL/one
= 0
$ info POOL/one
rbd image 'one':
	size 8.6 MiB in 3 objects
	order 22 (4 MiB objects)
	snapshot_count: 0
	block_name_prefix: rb.X
	format: 1
= 0
"""

REFUSED = r"""
$ snap protect POOL/one@s
rbd: protecting snap failed: (38) Function not implemented
= 38
$ snap unprotect POOL/one@s
rbd: snap is already unprotected
= 22
$ clone POOL/one@s POOL/kid
rbd: clone error: (2) No such file or directory
= 2
$ feature enable POOL/one exclusive-lock
rbd: failed to update image features: (22) Invalid argument
= 22
$ flatten POOL/one
Image flatten: complete...failed.
rbd: flatten error: (22) Invalid argument
= 22
$ trash mv POOL/one
rbd: deferred delete error: (95) Operation not supported
= 95
$ rm POOL/one
Removing image: complete...failed.
rbd: image has snapshots - these must be deleted with 'rbd snap purge' before the image can be removed.
= 39
$ object-map rebuild POOL/one
Object Map Rebuild: complete...failed.
rbd: rebuilding object map failed: (22) Invalid argument
= 22
"""

KEPT_BESIDE = r"""
$ lock add POOL/one id
= 0
$ lock add POOL/one id
rbd: lock is already held by someone else
= 16
$ lock ls POOL/one
There is 1 exclusive lock on this image.
Locker  ID  Address
client.N  id  ADDRESS
= 0
$ image-meta set POOL/one a b
= 0
$ image-meta ls POOL/one
There is 1 metadatum on this image:

Key  Value
a    b
= 0
$ image-meta get POOL/one a
b
= 0
$ image-meta remove POOL/one a
= 0
$ image-meta ls POOL/one
There are 0 metadata on this image.
= 0
"""

COPIES = r"""
$ cp POOL/one POOL/copy
Image copy: 100% complete...done.
= 0
$ info POOL/copy
rbd image 'copy':
	size 8.6 MiB in 3 objects
	order 22 (4 MiB objects)
	snapshot_count: 0
	id: ID
	block_name_prefix: rbd_data.ID
	format: 2
	features:
	op_features:
	flags:
	create_timestamp: TIME
	access_timestamp: TIME
	modify_timestamp: TIME
= 0
$ deep cp POOL/one POOL/deep
Image deep copy: 100% complete...done.
= 0
$ snap ls POOL/deep
SNAPID  NAME  SIZE     PROTECTED  TIMESTAMP
SNAP  s     8.6 MiB             TIME
= 0
$ export --export-format 2 POOL/one DIR/two
Exporting image: 100% complete...done.
= 0
$ import --export-format 2 DIR/two POOL/imported
Importing image: 100% complete...done.
= 0
$ ls -l POOL
NAME        SIZE     PARENT  FMT  PROT  LOCK
one         8.6 MiB            1
one@s       8.6 MiB            1
copy        8.6 MiB            2
deep        8.6 MiB            2
deep@s      8.6 MiB            2
imported    8.6 MiB            2
imported@s  8.6 MiB            2
= 0
"""

MIGRATION = r"""
$ migration prepare POOL/one POOL/moved
= 0
$ status POOL/moved
Watchers: none
Migration:
	source: POOL/one
	destination: POOL/moved (ID)
	state: prepared
= 0
$ ls POOL
moved
= 0
$ migration abort POOL/moved
Abort image migration: 100% complete...done.
= 0
$ ls POOL
one
= 0
$ info POOL/one
rbd image 'one':
	size 8.6 MiB in 3 objects
	order 22 (4 MiB objects)
	snapshot_count: 1
	block_name_prefix: rb.X
	format: 1
= 0
$ migration prepare POOL/one POOL/moved
= 0
$ rm POOL/one
Removing image: complete...failed.
rbd: delete error: (30) Read-only file system
= 30
$ ls -l POOL
NAME     SIZE     PARENT  FMT  PROT  LOCK
moved    8.6 MiB            2
moved@s  8.6 MiB            2
= 0
$ info POOL/one
rbd image 'one':
	size 8.6 MiB in 3 objects
	order 22 (4 MiB objects)
	snapshot_count: 1
	block_name_prefix: rb.X
	format: 1
= 0
"""

MIGRATED = r"""
$ migration execute POOL/moved
Image migration: 100% complete...done.
= 0
$ migration commit POOL/moved
Commit image migration: 100% complete...done.
= 0
$ ls -l POOL
NAME     SIZE     PARENT  FMT  PROT  LOCK
moved    8.6 MiB            2
moved@s  8.6 MiB            2
= 0
$ info POOL/one
rbd: error opening image one: (2) No such file or directory
= 2
$ snap ls POOL/moved
SNAPID  NAME  SIZE     PROTECTED  TIMESTAMP
SNAP  s     8.6 MiB             TIME
= 0
$ status POOL/moved
Watchers: none
= 0
"""


@pytest.fixture
def old(cluster, tmp_path):
    """A new pool, in which `rbd` makes images of format 1."""
    pool = cluster.make_pool('rbd')
    yield Old(cluster, pool, tmp_path)
    cluster.drop_pool(pool)


class Old(Images):
    def said(self, line):
        """What a command says: its output, what it says beside, and its status."""
        args = shlex.split(line.replace('POOL', self.pool).replace('DIR', str(self.tmp)))
        quiet = self.cluster.with_args('--err-to-stderr=false --log-to-stderr=false')
        r = quiet.rbd(*args, check=None, env={'RBD_FORCE_ALLOW_V1': '1'}, timeout=60)
        text = r.out + re.sub(r'[^\n]*\r', '', r.err)           # of the progress the last line stays
        for found, put in ((self.pool, 'POOL'), (r'\brb\.[0-9a-f.]+', 'rb.X'), (r'client\.\d+', 'client.N'),
                           (r'[\d.]+:0/\d+', 'ADDRESS'), (r'Locker +', 'Locker  '), (r'\b[0-9a-f]{9,16}\b', 'ID'),
                           (r'\w{3} \w{3} .\d \d\d:\d\d:\d\d \d{4}', 'TIME'), (r'"id":\d+', '"id":SNAP'),
                           (r'(?m)^ *\d+(?=  \w+ +[\d.]+ MiB)', 'SNAP'), (r'\d+% (?=complete...failed)', ''),
                           (r'(?m) +$', '')):
            text = re.sub(found, put, text)
        return text + '= %d\n' % r.returncode

    def play(self, transcript):
        for part in re.split(r'(?m)^\$ ', transcript)[1:]:
            line, want = part.split('\n', 1)
            assert self.said(line) == want, 'rbd ' + line

    def directory(self):
        """Names in the map, in its order: the whole of the object's data is one."""
        path = self.tmp / unique('directory')
        self.cluster.rados(self.pool, 'get', 'rbd_directory', path)
        data, at, names = path.read_bytes(), 8, []
        while at < len(data):
            size = int.from_bytes(data[at:at + 4], 'little')
            names.append(data[at + 4:at + 4 + size].decode())
            assert data[at + 4 + size:at + 8 + size] == bytes(4), data
            at += 8 + size
        assert data[:8] == bytes(4) + len(names).to_bytes(4, 'little'), data
        return names

    def imported(self, name, size=SIZE):
        data = pattern(size, holes=False)
        (self.tmp / 'data').write_bytes(data)
        assert self.said('import --image-format 1 DIR/data POOL/' + name) == IMPORTED
        return data


def test_create_list_rename_remove(old):
    old.play(CREATE)
    assert old.directory() == ['a-first', 'one']
    old.play(RENAME)
    assert old.directory() == ['a-first', 'uno']
    old.play(REMOVE)
    assert old.directory() == []
    assert [o for o in old.cluster.rados(old.pool, 'ls').out.split() if o.startswith('rb.') or o.endswith('.rbd')] == []


def test_content_and_resize(old):
    data, more = old.imported('one'), pattern(MIB, holes=False)
    assert old.read('one') == data
    old.write('one', 3 * MIB + 512, more)
    data = data[:3 * MIB + 512] + more + data[4 * MIB + 512:]
    assert sha(old.read('one')) == sha(data)
    old.cluster.rbd('resize', old.spec('one'), '--size', '5M', '--allow-shrink')
    old.cluster.rbd('resize', old.spec('one'), '--size', '12M')
    before = old.read('one')
    assert before == data[:5 * MIB] + bytes(7 * MIB)
    old.cluster.rbd('bench', '--io-type', 'write', '--io-size', '64K', '--io-total', '1M', old.spec('one'))
    after = old.read('one')
    pieces = range(0, 12 * MIB, 64 << 10)
    assert sum(before[i:i + 65536] != after[i:i + 65536] for i in pieces) == 16


def test_snapshots(old):
    data, more = old.imported('one'), pattern(MIB, holes=False)
    old.snap('one', 's')
    old.write('one', MIB, more)
    old.play(SNAPSHOTS)
    assert old.read('one', 's') == data
    assert old.read('one') == old.read('one', 'u') == data[:MIB] + more + data[2 * MIB:]
    old.play(ROLLBACK)
    assert old.read('one') == data


def test_what_the_format_cannot_do_is_refused(old):
    old.imported('one', 4096)
    old.snap('one', 's')
    old.play(REFUSED)


def test_locks_and_metadata(old):
    old.imported('one', 4096)
    old.play(KEPT_BESIDE)
    locker = old.cluster.rbd_json('lock', 'ls', old.spec('one'))[0]['locker']
    old.cluster.rbd('lock', 'rm', old.spec('one'), 'id', locker)
    assert old.cluster.rbd_json('lock', 'ls', old.spec('one')) == []


def test_copies_are_of_format_2(old):
    data, more = old.imported('one'), pattern(MIB, holes=False)
    old.snap('one', 's')
    old.write('one', MIB, more)
    old.play(COPIES)
    new = data[:MIB] + more + data[2 * MIB:]
    assert [sha(old.read(name)) for name in ('copy', 'deep', 'imported', 'one')] == [sha(new)] * 4
    assert old.read('deep', 's') == old.read('imported', 's') == data


def test_migration_to_format_2(old):
    data, more = old.imported('one'), pattern(MIB, holes=False)
    old.snap('one', 's')
    old.write('one', MIB, more)
    data = [data, data[:MIB] + more + data[2 * MIB:]]
    old.play(MIGRATION)
    assert old.directory() == []
    assert [old.read('moved', 's'), old.read('moved')] == data
    old.write('moved', 5 * MIB, more)
    data[1] = data[1][:5 * MIB] + more + data[1][6 * MIB:]
    old.play(MIGRATED)
    assert [old.read('moved', 's'), old.read('moved')] == data
