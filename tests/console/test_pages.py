"""Each page with what is really there, as the stock tools say it."""
import json
import re
import subprocess

import pytest

from skeptest.cluster import unique
from skeptest.console import Browser, entity, words
from skeptest.run import end_group, wait_until
from skeptest.s3 import Gateway, User
from skeptest.s3 import admin as s3_admin

pytestmark = [pytest.mark.own, pytest.mark.cephx]
PAGES = ['/', '/doctor', '/osds', '/pools', '/images', '/files', '/pgs', '/slow', '/why', '/log']


def test_every_page_answers_both(admin, reader):
    for path in PAGES:
        page = admin.get(path).text
        assert page.count('<h1>') == 1 and '<main' in page and 'aria-current="page"' in page, path
        reads = reader.get(path).text
        assert 'action="/do"' not in reads and 'reads only' in words(reads), path
    assert 'There is no such page' in words(admin.get('/none', 404).text)


def test_overview(served, admin):
    text = admin.read('/')
    assert served.ceph_json('status')['fsid'] in text
    assert 'OSDs up 3 of 3' in text and 'All copies are where they belong' in text
    served.ceph('osd', 'set', 'noout')
    try:
        wait_until(lambda: 'noout flag(s) set' in admin.read('/'), 60, 0.2, 'the check to be shown')
        assert 'HEALTH_WARN' in admin.read('/') and 'OSDMAP_FLAGS' in admin.read('/doctor')
    finally:
        served.ceph('osd', 'unset', 'noout')


def test_curves_come_with_time(served, admin, images):
    served.run('rados', '-p', images, 'bench', '3', 'write', '-b', '4096', '-t', '4', '--no-cleanup')
    wait_until(lambda: '<polyline' in admin.get('/').text, 60, 0.5, 'the curves')


def test_osds(served, admin):
    text = admin.read('/osds')
    for node in served.ceph_json('osd', 'tree')['nodes']:
        assert node['name'] in text
    assert text.count('up, in') == 6, 'each OSD in the map and in the table'


def test_pools_and_images(served, admin, images):
    image, clone = unique('image'), unique('clone')
    served.rbd('create', '--size', '96M', '%s/%s' % (images, image))
    served.rbd('snap', 'create', '%s/%s@one' % (images, image))
    served.rbd('clone', '--rbd-default-clone-format', '2', '%s/%s@one' % (images, image), '%s/%s' % (images, clone))
    assert images in admin.read('/pools')
    listed = admin.read('/images', pool=images)
    assert '%s 96 MiB 1 no' % image in listed and '%s 96 MiB 0 yes' % clone in listed
    for behind in (5000, 2**64 - 1):
        assert 'The list ends before that' in admin.read('/images', pool=images, first=behind)
    shown = admin.read('/image', pool=images, image=image)
    assert 'exclusive-lock' in shown and 'one 96 MiB not protected 1' in shown and 'Open by nobody' in shown
    assert '%s/%s@one' % (images, image) in admin.read('/image', pool=images, image=clone)
    assert 'there is no image' in words(admin.get('/image', 404, pool=images, image='none').text)
    assert 'none-such' in words(admin.get('/image', 404, pool='none-such', image='none').text)


def test_namespaces(served, admin, images):
    served.rbd('namespace', 'create', images + '/tenant')
    served.rbd('create', '--size', '8M', images + '/tenant/own')
    assert 'tenant' in admin.read('/images', pool=images)
    assert 'own 8.0 MiB' in admin.read('/images', pool=images, namespace='tenant')
    assert 'own' not in admin.read('/images', pool=images).split('Trash')[0].split('Features')[-1].split()


def test_who_may_not_read_a_pool_is_told(served, images):
    browser = Browser(served.url)
    browser.login('client.narrow', entity(served, 'client.narrow', mon='allow r', osd='allow r pool=other'))
    text = browser.read('/images', pool=images)
    assert 'Not shown: rbd_directory: operation: Operation not permitted' in text


def test_groups_logs_and_slow_operations(served, admin, reader, images):
    assert 'active+clean' in admin.read('/pgs') and 'None is stuck' in admin.read('/pgs')
    flag = unique('word')
    served.ceph('log', flag)
    wait_until(lambda: flag in admin.read('/log'), 60, 0.2, 'the line in the log')
    assert 'osd pool create' in admin.read('/log', log='audit')
    assert flag not in admin.read('/log', level='error')
    served.run('rados', '-p', images, 'put', unique('object'), '/etc/hostname')
    text = admin.read('/slow')
    assert 'osd_op(client.' in text and 'reached pg' in text
    assert "it takes osd 'allow *'" in reader.read('/slow')


def test_why_it_is_slow(served, admin, reader, images):
    name = unique('image')
    spec = '%s/%s' % (images, name)
    served.rbd('create', '--size', '64M', spec)
    assert 'Look for 3 seconds' in admin.read('/why') and 'Where the time goes' not in admin.read('/why'), 'it looks when it is asked'
    assert 'No operation was answered meanwhile.' in admin.read('/why', look='1', about=spec)
    bench = served.popen('rbd', 'bench', '--io-type', 'write', '--io-size', '4K', '--io-threads', '4', '--io-total', '1T', '--io-pattern', 'rand',
                         '--rbd_cache=false', spec, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: 'Kind A second' in admin.read('/why', look='1', about=spec), 60, 0.1, 'writes')
        text = admin.read('/why', look='1', about=spec)
        assert 'Operations: ' + spec in text and ' writes ' in text and ' 4.0 KiB ' in text and 'Until durable' in text, text
        # The hop and the share of it, as `skep why` says it.
        assert re.search(r'until (osd\.\d+ has it durable|writes are durable).* \d+\.\d % ', text), text
        everybody = admin.get('/why', look='1').text
        client = re.search(r'href="(/why\?look=1&amp;about=client\.\d+)"', everybody)[1].replace('&amp;', '&')
        assert 'Kind A second' in words(admin.get(client).text)
        assert 'href="/why?look=1&amp;about=' in admin.get('/image', pool=images, image=name).text
    finally:
        end_group(bench)
        bench.wait(60)
    assert 'Not shown: ' in admin.read('/why', look='1', about='none-such')
    assert 'the servers know sessions' in admin.read('/why', look='1', about='client.admin')
    evil = admin.get('/why', look='1', about='"><script>alert(1)</script>').text
    assert '<script>alert' not in evil
    assert "it takes osd 'allow *'" in reader.read('/why', look='1')


def test_file_systems(served, admin):
    served.ceph('fs', 'volume', 'create', 'home')
    served.ceph('fs', 'subvolume', 'create', 'home', 'share', '--size', str(64 << 20))
    text = admin.read('/files')
    assert 'home' in text and 'share complete' in text and '64 MiB' in text
    wait_until(lambda: 'active' in admin.read('/files'), 60, 0.5, 'a metadata server')


def test_buckets(served, admin, reader, workdir):
    assert 'href="/buckets"' not in admin.get('/').text and 'There is no object gateway' in admin.read('/buckets')
    gateway = Gateway(served, workdir / 'console-s3.log').start()
    try:
        user, name = User(served, unique('user')), unique('bucket')
        s3 = gateway.client(user)
        s3.create_bucket(Bucket=name)
        s3.create_bucket(Bucket=name + '-second')
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={'Status': 'Enabled'})
        statement = {'Effect': 'Allow', 'Principal': '*', 'Action': 's3:GetObject', 'Resource': 'arn:aws:s3:::%s/*' % name}
        s3.put_bucket_policy(Bucket=name, Policy=json.dumps({'Version': '2012-10-17', 'Statement': [statement]}))
        s3.put_object(Bucket=name, Key='k', Body=bytes(2048))
        s3_admin(served, 'quota', 'set', '--bucket', name, '--max-size', '1M')
        s3_admin(served, 'quota', 'enable', '--bucket', name)
        # What a gateway counts it writes every other second.
        row = '%s %s 1 2.0 KiB 1.0 MiB on by policy yes 1 ' % (name, user.name)
        wait_until(lambda: row in admin.read('/buckets'), 60, 0.3, lambda: '%r in %s' % (row, admin.read('/buckets')))
        text = admin.read('/buckets')
        assert '%s-second %s 0 0 B none off no no 1 ' % (name, user.name) in text
        assert '%s %s 1 2 none none ' % (user.name, user.name) in text
        page = admin.get('/buckets').text
        assert user.secret not in page and user.access not in page and 'href="/buckets"' in page
        assert row in reader.read('/buckets')
        behind = admin.read('/buckets', after=name)
        assert row not in behind and name + '-second' in behind and 'First' in behind
        narrow = Browser(served.url)
        narrow.login('client.outside', entity(served, 'client.outside', mon='allow r', osd='allow r pool=other'))
        text = narrow.read('/buckets')
        assert 'Not shown' in text and name not in text
    finally:
        assert gateway.stop() == 0
