"""Every command that `rbd help` names, once, in an order in which each has something to work on.

What each does is looked at elsewhere (test_images.py and its neighbours, mirror/); here it is that none was forgotten: the
table of docs/compatibility.md comes from this run. A command of a newer `rbd` that is not in the list fails the test.
"""
import re

import pytest

from skeptest.cluster import external
from skeptest.gtest import Case
from skeptest.suites import judge, write_down

KERNEL = "needs the kernel's rbd or nbd driver"

# Not run. Kernel devices need a host with the driver; iotop needs a terminal, and never ends, as iostat and watch.
LEFT_OUT = {
    'device attach': KERNEL, 'device detach': KERNEL, 'device map': KERNEL, 'device unmap': KERNEL,
    'perf image iotop': 'draws on a terminal until it is ended', 'perf image iostat': 'goes on until it is ended',
    'watch': 'goes on until it is ended', 'persistent-cache flush': 'needs an image with a cache on the host',
    'persistent-cache invalidate': 'needs an image with a cache on the host',
}
FAILS = ()

# A command; what follows it, `{p}` the pool, `{t}` a folder. Lines with `+` set up what the next ones need.
STEPS = '''
pool init|{p}
create|--size 8M {p}/a
create+|--size 8M --image-feature layering,exclusive-lock,journaling {p}/j
info|{p}/a
list|{p}
bench|--io-type write --io-total 1M {p}/a
status|{p}/a
disk-usage|{p}/a
pool stats|{p}
resize|--size 16M --no-progress {p}/a
rename|{p}/a {p}/b
export|--no-progress {p}/b {t}/b
import|--no-progress {t}/b {p}/c
snap create|--no-progress {p}/b@s1
snap create+|--no-progress {p}/b@s2
snap list|{p}/b
snap rename|{p}/b@s2 {p}/b@s3
snap limit set|--limit 9 {p}/b
snap limit clear|{p}/b
snap protect|{p}/b@s1
clone|{p}/b@s1 {p}/child
children|{p}/b@s1
flatten|--no-progress {p}/child
snap unprotect|{p}/b@s1
snap rollback|--no-progress {p}/b@s1
diff|{p}/b
export-diff|--no-progress --from-snap s1 {p}/b@s3 {t}/d1
export-diff+|--no-progress --from-snap s3 {p}/b {t}/d2
merge-diff|--no-progress {t}/d1 {t}/d2 {t}/d3
import-diff+|--no-progress {t}/d0 {p}/c
import-diff|--no-progress {t}/d3 {p}/c
snap remove|--no-progress {p}/b@s3
snap purge|--no-progress {p}/b
copy|--no-progress {p}/b {p}/copy
deep copy|--no-progress {p}/b {p}/deep
sparsify|--no-progress {p}/copy
feature disable|{p}/copy object-map,fast-diff
feature enable|{p}/copy object-map
object-map rebuild|--no-progress {p}/copy
object-map check|--no-progress {p}/copy
encryption format|{p}/deep luks1 {t}/pass
image-meta set|{p}/b k v
image-meta get|{p}/b k
image-meta list|{p}/b
image-meta remove|{p}/b k
lock add|{p}/b cookie
lock list|{p}/b
lock remove|{p}/b cookie {locker}
config global set|global rbd_cache true
config global get|global rbd_cache
config global list|global
config global remove|global rbd_cache
config pool set|{p} rbd_cache true
config pool get|{p} rbd_cache
config pool list|{p}
config pool remove|{p} rbd_cache
config image set|{p}/b rbd_cache true
config image get|{p}/b rbd_cache
config image list|{p}/b
config image remove|{p}/b rbd_cache
group create|{p}/g
group image add|{p}/g {p}/b
group image list|{p}/g
group snap create|{p}/g@s
group snap list|{p}/g
group snap rename|{p}/g@s t
group snap rollback|--no-progress {p}/g@t
group snap remove|{p}/g@t
group image remove|{p}/g {p}/b
group rename|{p}/g {p}/h
group list|{p}
group remove|{p}/h
namespace create|{p}/n
namespace list|{p}
namespace remove|{p}/n
bench+|--io-type write --io-total 64K {p}/j
journal info|--pool {p} --image j
journal status|--pool {p} --image j
journal inspect|--pool {p} --image j
journal export|--pool {p} --image j --path {t}/journal
journal import|--path {t}/journal --dest-pool {p} --dest j
journal reset|--pool {p} --image j
journal client disconnect|--pool {p} --image j
trash move|{p}/copy
trash list|{p}
trash restore|{p}/{trash}
trash move+|{p}/copy
trash remove|--no-progress {p}/{trash}
trash purge|--no-progress {p}
migration prepare|{p}/child {p}/moved
migration execute|--no-progress {p}/moved
migration commit|--no-progress {p}/moved
migration prepare+|{p}/moved {p}/back
migration abort|--no-progress {p}/back
device list|
mirror pool enable|{p} image
mirror pool info|{p}
mirror pool peer bootstrap create|--site-name here {p}
mirror pool peer bootstrap import|--site-name here {p} {t}/token
mirror pool peer add|{p} client.x@there
mirror pool peer set|{p} {peer} site-name elsewhere
mirror image enable|{p}/b snapshot
mirror image snapshot|{p}/b
mirror pool peer remove|{p} {peer}
mirror image status|{p}/b
mirror image demote|{p}/b
mirror image promote|{p}/b
mirror image resync|{p}/b
mirror pool status|{p}
mirror pool demote|{p}
mirror pool promote|{p}
mirror snapshot schedule add|--pool {p} 1h
mirror snapshot schedule list|--pool {p}
mirror snapshot schedule status|--pool {p}
mirror snapshot schedule remove|--pool {p} 1h
mirror image disable|--force {p}/b
mirror pool disable|{p}
trash purge schedule add|--pool {p} 1h
trash purge schedule list|--pool {p}
trash purge schedule status|--pool {p}
trash purge schedule remove|--pool {p} 1h
remove|--no-progress {p}/b
'''
# Those that the arguments make fail, on a real Ceph as well: resync of a primary, a cluster as its own peer, a
# journal that no peer follows. That they get as far is what counts.
RIGHTLY = {'mirror image resync': 'image is primary', 'mirror pool peer bootstrap import': 'cannot import',
           'journal client disconnect': 'no registered clients'}


def commands(cluster):
    """What `rbd help` names."""
    # In columns: four blanks, the command and its other names, from the 39th on what it does.
    lines = [line for line in cluster.rbd('help').out.splitlines() if re.match('    [a-z]', line)]
    return {line[4:38].split('(')[0].strip() for line in lines}


def found(cluster, pool, what):
    """Of what the cluster made up itself: a locker, an id in the trash, a peer."""
    if what == 'locker':
        return cluster.rbd_json('lock', 'ls', pool + '/b')[0]['locker']
    if what == 'trash':
        return cluster.rbd_json('trash', 'ls', pool)[0]['id']
    return cluster.rbd_json('mirror', 'pool', 'info', pool)['peers'][0]['uuid']


def arguments(cluster, pool, folder, text):
    words = text.replace('{p}', pool).replace('{t}', str(folder))
    for what in ('locker', 'trash', 'peer'):
        if '{%s}' % what in words:
            words = words.replace('{%s}' % what, found(cluster, pool, what))
    return words.split()


@pytest.mark.long
def test_every_command(cluster, rbd_pool, tmp_path):
    (tmp_path / 'pass').write_text('secret')
    cases = {}
    for line in STEPS.split('\n'):
        if not line:
            continue
        command, rest = line.split('|')
        name = command.rstrip('+')
        if 'd0' in rest:
            cluster.rbd('snap', 'create', '--no-progress', rbd_pool + '/c@s1')
            continue
        if 'token' in rest:
            token = cluster.rbd('mirror', 'pool', 'peer', 'bootstrap', 'create', rbd_pool, check=None).out
            (tmp_path / 'token').write_text(token)
        r = cluster.rbd(*name.split(), *arguments(cluster, rbd_pool, tmp_path, rest), check=None)
        rightly = name in RIGHTLY and RIGHTLY[name] in r.err
        if command == name:
            cases[name] = Case('passed' if r.returncode == 0 or rightly else 'failed', r.err)
    named = commands(cluster)
    assert named, 'rbd help names nothing'
    assert named == set(cases) | set(LEFT_OUT), named ^ (set(cases) | set(LEFT_OUT))
    write_down('rbd commands', cluster.rbd('--version').out.split()[2], cases, FAILS, LEFT_OUT)
    if not external():
        judge('rbd commands', cases, FAILS)
