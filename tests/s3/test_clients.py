"""s3cmd and rclone of Debian, as people run them."""
import pytest

from skeptest.cluster import unique
from skeptest.run import run
from skeptest.s3 import bytes_of


@pytest.fixture
def s3cmd(gateway, user, tmp_path):
    conf = tmp_path / 's3cfg'
    host = '127.0.0.1:%d' % gateway.port
    conf.write_text('[default]\naccess_key = %s\nsecret_key = %s\nhost_base = %s\nhost_bucket = %s\nuse_https = False\n'
                    'multipart_chunk_size_mb = 5\nbucket_location = us-east-1\n' % (user.access, user.secret, host, host))
    return lambda *args, **kw: run(['s3cmd', '-c', conf, '--no-progress', *args], **kw)


@pytest.fixture
def tree(tmp_path):
    """Files with names that want care, and one that is uploaded in parts."""
    root = tmp_path / 'tree'
    for name, size in [('a', 0), ('b c', 10), ('d/é', 70000), ('d/e/f+g', 100), ('big', (11 << 20) + 5)]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(bytes_of(size))
    return root


def test_s3cmd(s3cmd, tree, tmp_path):
    bucket = 's3://' + unique('bucket')
    s3cmd('mb', bucket)
    assert bucket in s3cmd('ls').out
    s3cmd('sync', str(tree) + '/', bucket + '/t/')
    listed = s3cmd('ls', '-r', bucket).out
    assert len(listed.splitlines()) == 5 and bucket + '/t/d/é' in listed
    assert 'DIR' in s3cmd('ls', bucket).out
    again = s3cmd('sync', str(tree) + '/', bucket + '/t/')
    assert 'upload:' not in again.out, again
    back = tmp_path / 'back'
    back.mkdir()
    s3cmd('sync', bucket + '/t/', str(back) + '/')
    assert {p.relative_to(back): p.read_bytes() for p in back.rglob('*') if p.is_file()} == {
        p.relative_to(tree): p.read_bytes() for p in tree.rglob('*') if p.is_file()}
    assert 'ACL' in s3cmd('info', bucket + '/t/big').out
    s3cmd('cp', bucket + '/t/b c', bucket + '/copy')
    s3cmd('mv', bucket + '/copy', bucket + '/moved')
    assert s3cmd('du', bucket).out.split()[0] == str(sum(p.stat().st_size for p in tree.rglob('*') if p.is_file()) + 10)
    assert 'not empty' in s3cmd('rb', bucket, check='fails').err
    s3cmd('del', '-r', '--force', bucket)
    s3cmd('rb', bucket)


def test_rclone(gateway, user, tree, tmp_path):
    env = {'AWS_CA_BUNDLE': '', 'RCLONE_CONFIG': str(tmp_path / 'none'), 'RCLONE_CONFIG_S_TYPE': 's3', 'RCLONE_CONFIG_S_PROVIDER': 'Ceph',
           'RCLONE_CONFIG_S_ENDPOINT': gateway.url, 'RCLONE_CONFIG_S_ACCESS_KEY_ID': user.access,
           'RCLONE_CONFIG_S_SECRET_ACCESS_KEY': user.secret, 'RCLONE_S3_UPLOAD_CUTOFF': '6M', 'RCLONE_S3_CHUNK_SIZE': '5M'}

    def rclone(*args, **kw):
        return run(['rclone', *args], env=env, **kw)
    bucket = 's:' + unique('bucket')
    rclone('sync', tree, bucket + '/t')
    rclone('check', tree, bucket + '/t')
    assert len(rclone('lsf', '-R', '--files-only', bucket).out.splitlines()) == 5
    (tree / 'a').write_bytes(b'changed')
    (tree / 'big').unlink()
    rclone('sync', tree, bucket + '/t')
    rclone('check', tree, bucket + '/t')
    rclone('move', bucket + '/t', bucket + '/u')
    rclone('check', tree, bucket + '/u', '--download')
    rclone('purge', bucket)
