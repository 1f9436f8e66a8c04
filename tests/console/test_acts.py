"""Each button's effect, as the stock `ceph` and `rbd` see it; and what a reader's forms do: nothing."""
import concurrent.futures
import contextlib
import html
import json
import re
import struct
import subprocess

import pytest
import requests

from skeptest.cluster import unique
from skeptest.console import Browser, entity, words
from skeptest.run import wait_until

pytestmark = [pytest.mark.own, pytest.mark.cephx]


@pytest.fixture
def image(served, images):
    name = unique('image')
    served.rbd('create', '--size', '64M', '%s/%s' % (images, name))
    return name


@contextlib.contextmanager
def watched(served, admin, images, image):
    """Somebody has the image open, and the console knows."""
    watch = served.popen('rbd', 'watch', '%s/%s' % (images, image), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: 'Open by client.' in admin.read('/image', pool=images, image=image), 60, 0.2, 'the watch')
        yield
        # So ended it leaves no watch behind.
        watch.communicate(b'\n', timeout=60)
    finally:
        watch.kill()
        watch.wait(60)


def info(served, spec):
    return json.loads(served.rbd('info', spec, '--format', 'json').out)


def snaps(served, spec):
    return {s['name']: s['protected'] for s in json.loads(served.rbd('snap', 'ls', spec, '--format', 'json').out)}


def trash(served, pool):
    return {t['name']: t['id'] for t in json.loads(served.rbd('trash', 'ls', pool, '--format', 'json').out)}


def test_out_and_in_again(served, admin):
    out = lambda: [o['osd'] for o in served.ceph_json('osd', 'dump')['osds'] if not o['in']]       # noqa: E731
    page = admin.act('osd-out', 200, sure='', osd='2').text
    assert 'ceph osd out 2' in words(page) and 'name="sure" value="yes"' in page
    assert out() == [], 'the first page only asks'
    admin.act('osd-out', osd='2')
    # A part that refreshes itself does not take the words from the page that shows them.
    admin.session.get(served.url + '/osds', headers={'HX-Request': 'true'})
    assert out() == [2] and 'Done: ceph osd out 2' in admin.read('/osds')
    assert 'Done:' not in admin.read('/osds'), 'it is said once'
    assert 'osd.2 is up and out' in admin.read('/doctor')
    r = admin.act('osd-in', osd='2', **{'from': 'doctor'})
    assert r.headers['Location'] == '/doctor' and out() == []


def test_flags(served, admin):
    flags = lambda: served.ceph_json('osd', 'dump')['flags'].split(',')       # noqa: E731
    admin.act('flag-set', flag='noout')
    assert 'noout' in flags() and 'Unset noout' in admin.read('/doctor')
    admin.act('flag-unset', flag='noout')
    assert 'noout' not in flags()
    assert 'none of the flags' in words(admin.act('flag-set', 400, flag='pause').text)
    log = served.ceph('log', 'last', '50', 'info', 'audit').out
    assert '"prefix":"osd unset"' in log and "entity='client.admin'" in log


def test_create_and_resize(served, admin, images):
    name = unique('made')
    spec = '%s/%s' % (images, name)
    admin.act('image-create', pool=images, namespace='', image=name, size='24M')
    assert info(served, spec)['size'] == 24 << 20
    assert 'client.admin from 127.0.0.1: rbd create --size 24M %s' % spec in served.log.read_text(errors='replace')
    assert 'exists already' in words(admin.act('image-create', 409, pool=images, image=name, size='24M').text)
    admin.act('image-resize', pool=images, image=name, size='1G')
    assert info(served, spec)['size'] == 1 << 30
    refused = admin.act('image-resize', 409, pool=images, image=name, size='16M').text
    assert 'shrinking' in words(refused) and info(served, spec)['size'] == 1 << 30
    page = admin.act('image-resize', 200, sure='', pool=images, image=name, size='16M', shrink='yes').text
    assert 'lost for ever' in words(page) and info(served, spec)['size'] == 1 << 30
    admin.act('image-resize', pool=images, image=name, size='16M', shrink='yes')
    assert info(served, spec)['size'] == 16 << 20
    for size in ('', '-5G', 'much', '1e99T'):
        admin.act('image-create', 400, pool=images, image=unique('no'), size=size)


def test_snapshots_and_clones(served, admin, images, image):
    at = {'pool': images, 'image': image}
    spec = '%s/%s' % (images, image)
    admin.act('snap-create', snap='one', **at)
    assert snaps(served, spec) == {'one': 'false'}
    admin.act('snap-protect', snap='one', **at)
    assert snaps(served, spec) == {'one': 'true'}
    assert 'protected' in words(admin.act('snap-remove', 409, snap='one', **at).text)
    clone = unique('clone')
    admin.act('image-clone', snap='one', to_pool=images, to_namespace='', to_image=clone, **at)
    parent = info(served, '%s/%s' % (images, clone))['parent']
    assert (parent['image'], parent['snapshot']) == (image, 'one')
    admin.act('snap-unprotect', snap='one', **at)
    assert snaps(served, spec) == {'one': 'false'}
    served.rbd('rm', '%s/%s' % (images, clone))
    admin.act('snap-remove', 200, sure='', snap='one', **at)
    assert snaps(served, spec) == {'one': 'false'}, 'the first page only asks'
    admin.act('snap-remove', snap='one', **at)
    assert snaps(served, spec) == {}


def test_into_the_trash_and_out_again(served, admin, images, image):
    spec = '%s/%s' % (images, image)
    data = bytes(range(256)) * 4096
    served.run('rbd', 'import', '-', spec + '-data', stdin=data)
    admin.act('snap-create', pool=images, image=image + '-data', snap='kept')
    admin.act('image-trash', 200, sure='', pool=images, image=image + '-data')
    assert image + '-data' not in trash(served, images)
    admin.act('image-trash', pool=images, image=image + '-data')
    id_ = trash(served, images)[image + '-data']
    served.run('rbd', 'info', spec + '-data', check=2)
    assert image + '-data' in admin.read('/images', pool=images).split('Trash')[1]
    # A name that somebody has by now is not taken from him.
    assert 'exists already' in words(admin.act('trash-restore', 409, pool=images, id=id_, image=image).text)
    admin.act('trash-restore', pool=images, id=id_, image=image + '-back')
    assert served.run('rbd', 'export', spec + '-back', '-').out_bytes == data
    assert snaps(served, spec + '-back') == {'kept': 'false'} and image + '-data' not in trash(served, images)
    # What the stock tool put there comes out here, and the other way round.
    served.rbd('trash', 'mv', spec + '-back')
    admin.act('trash-restore', pool=images, id=id_, image=image + '-again')
    admin.act('image-trash', pool=images, image=image + '-again')
    served.rbd('trash', 'restore', '%s/%s' % (images, id_))
    assert served.run('rbd', 'export', spec + '-again', '-').out_bytes == data


def text(s):
    return struct.pack('<I', len(s)) + s.encode()


NORMAL, MOVING, RESTORING = 0, 1, 3


def test_moves_and_restores_that_were_cut_short(served, admin, images):
    """As far as a console came that was killed in between: asked for again, they come to their end."""
    import rados
    with rados.Rados(conffile=str(served.conf), name='client.admin') as client, client.open_ioctx(images) as io:
        def call(oid, method, data):
            io.execute(oid, 'rbd', method, data)

        def state(id_, to, of):
            call('rbd_trash', 'trash_state_set', text(id_) + bytes([to, of]))

        for in_directory in (False, True):
            name = unique('cut')
            spec = '%s/%s' % (images, name)
            data = bytes(range(256)) * 4096
            served.run('rbd', 'import', '-', spec, stdin=data)
            served.rbd('trash', 'mv', spec)
            id_ = trash(served, images)[name]
            # The move: before its last mark, and before the directory.
            state(id_, MOVING, NORMAL)
            if in_directory:
                call('rbd_directory', 'dir_add_image', text(name) + text(id_))
            admin.act('image-trash', pool=images, image=name)
            assert name not in served.rbd('ls', images).out.split()
            # The restore: after its first mark; and where the directory has the name already, without its object.
            state(id_, RESTORING, NORMAL)
            if in_directory:
                call('rbd_directory', 'dir_add_image', text(name) + text(id_))
                refused = words(admin.act('trash-restore', 409, pool=images, id=id_, image=name + '-other').text)
                assert "restore it by that name" in refused
                # It stays as it is being restored: while it has a name, nobody removes it from the trash.
                with pytest.raises(rados.Error):
                    state(id_, MOVING, NORMAL)
            admin.act('trash-restore', pool=images, id=id_, image=name)
            assert served.run('rbd', 'export', spec, '-').out_bytes == data
            assert name not in trash(served, images) and name in served.rbd('ls', images).out.split()
            assert 'No such file' in served.run('rbd', 'info', spec + '-other', check=2).err
            served.rbd('rm', spec)


def test_an_image_that_is_open_stays(served, admin, images, image):
    spec = '%s/%s' % (images, image)
    with watched(served, admin, images, image):
        assert 'somebody has it open' in words(admin.act('image-trash', 409, pool=images, image=image).text)
        assert info(served, spec)['name'] == image and image not in trash(served, images)


def hidden(page, act):
    """The fields of a page's forms of this act."""
    forms = [dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form)) for form in re.findall(r'<form.*?</form>', page, re.S)]
    found = [{k: html.unescape(v) for k, v in f.items() if k not in ('csrf', 'act')} for f in forms if f.get('act') == act]
    assert found, act
    return found[0]


def test_acts_are_about_what_was_shown(served, admin, images, image):
    """Names are not trimmed, and not taken for those of others that came meanwhile."""
    spaced = image + ' '
    served.rbd('create', '--size', '8M', '--pool', images, '--image', spaced)
    admin.act('image-resize', size='16M', **hidden(admin.get('/image', pool=images, image=spaced).text, 'image-resize'))
    assert info(served, '%s/%s' % (images, image))['size'] == 64 << 20
    assert info(served, '%s/%s' % (images, spaced))['size'] == 16 << 20
    admin.act('snap-create', snap='s', pool=images, image=image)
    old = admin.get('/image', pool=images, image=image).text
    spec = '%s/%s' % (images, image)
    served.rbd('snap', 'rm', spec + '@s')
    served.rbd('snap', 'create', spec + '@s')
    assert 'by now' in words(admin.act('snap-remove', 409, **hidden(old, 'snap-remove')).text)
    assert 's' in snaps(served, spec)
    served.rbd('rename', spec, spec + '-away')
    served.rbd('rename', '%s/%s' % (images, spaced), spec)
    assert 'by now' in words(admin.act('image-trash', 409, **hidden(old, 'image-trash')).text)
    assert image not in trash(served, images)


def test_a_reader_changes_nothing(served, reader, images, image):
    spec = '%s/%s' % (images, image)
    at = {'pool': images, 'image': image}
    for act, fields in [('osd-out', {'osd': '0'}), ('flag-set', {'flag': 'noout'}), ('image-create', {**at, 'size': '1G'}),
                        ('image-resize', {**at, 'size': '2G'}), ('snap-create', {**at, 'snap': 'x'}), ('image-trash', at)]:
        assert 'may not change anything' in words(reader.act(act, 403, **fields).text)
    assert info(served, spec)['size'] == 64 << 20 and snaps(served, spec) == {}
    assert all(o['in'] for o in served.ceph_json('osd', 'dump')['osds'])


def test_acts_that_hang_have_a_bound(served, admin, images):
    """Changes go on when their browser has left, so it is not connections that bound them."""
    token = admin.token
    fields = {'act': 'image-create', 'csrf': token, 'pool': images, 'size': '8M', 'sure': 'yes'}

    def left(name):
        with contextlib.suppress(requests.ReadTimeout):
            return admin.session.post(served.url + '/do', data={**fields, 'image': name}, timeout=5, allow_redirects=False).status_code
    served.ceph('osd', 'pause')
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as others:
            told = list(others.map(left, [unique('hangs') for _ in range(24)]))
        assert told.count(503) >= 8 and set(told) <= {None, 503}, told
        assert 'was not begun' in words(admin.act('image-create', 503, pool=images, image='late', size='8M').text)
    finally:
        served.ceph('osd', 'unpause')
    name = unique('after')

    def made():
        fresh = {**fields, 'image': name}
        return admin.session.post(served.url + '/do', data=fresh, timeout=90, allow_redirects=False).status_code == 303
    wait_until(made, 120, 1, 'a place for a change')
    assert name in served.rbd('ls', images).out.split() and 'late' not in served.rbd('ls', images).out.split()


def test_the_cluster_has_the_last_word(served, images, image):
    """Who may change the maps and has no rights at the OSDs is refused there: the console has no rights of its own."""
    browser = Browser(served.url)
    browser.login('client.maps', entity(served, 'client.maps', mon='allow rw', osd='allow r'))
    browser.act('snap-create', 409, pool=images, image=image, snap='x')
    assert snaps(served, '%s/%s' % (images, image)) == {}
    browser.act('flag-set', flag='noscrub')
    browser.act('flag-unset', flag='noscrub')


def test_names_are_only_text(served, admin, images):
    evil = '<img src=x onerror=alert(1)>"\'&'
    spec = '%s/%s' % (images, evil)
    admin.act('image-create', pool=images, image=evil, size='8M')
    admin.act('snap-create', pool=images, image=evil, snap=evil)
    assert snaps(served, spec) == {evil: 'false'}
    name = 'client.<b>' + unique('x')
    browser = Browser(served.url)
    browser.login(name, entity(served, name, mon='allow rw', osd='allow rwx'))
    with watched(served, admin, images, evil):
        pages = [b.get(path, **query).text for b in (admin, browser) for path, query in [
            ('/images', {'pool': images}), ('/image', {'pool': images, 'image': evil}), ('/log', {'log': 'audit'}), ('/slow', {})]]
    pages.append(admin.get('/image', 404, pool=evil, image=evil).text)
    pages.append(admin.act('image-trash', 200, sure='', pool=images, image=evil).text)
    pages.append(admin.act(evil, 400).text)
    pages.append(Browser(served.url, '127.0.0.7').login(evil, 'x', 403).text)
    for page in pages:
        assert '<img' not in page and 'client.<b>' not in page
    assert evil in words(pages[0]) and evil in words(pages[1])
    admin.act('snap-remove', pool=images, image=evil, snap=evil)
    served.rbd('rm', spec)
