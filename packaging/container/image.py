#!/usr/bin/env python3
"""Writes an OCI image of one layer: `image.py ROOT ARCHIVE --version V --arch A [--revision R] [--source URL]`.

ROOT is the file system as a folder, ARCHIVE an OCI layout in one tar, which `podman load`, `skopeo copy oci-archive:...` and `docker load`
read. The same ROOT gives the same bytes: names are sorted, times are SOURCE_DATE_EPOCH, owners are numbers, and gzip keeps no time.

Everything belongs to root but the data directory, which belongs to the user that the image runs as by default. That user is a number, so that
Kubernetes can see that it is not root.
"""
import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import tarfile

USER = 10001
DATA = 'var/lib/skep'
# Monitor (messenger v2, v1), S3, the console. OSDs and the manager take ports that the system gives them.
PORTS = (3300, 6789, 7480, 8443)
LAYER_TYPE = 'application/vnd.oci.image.layer.v1.tar+gzip'
CONFIG_TYPE = 'application/vnd.oci.image.config.v1+json'
MANIFEST_TYPE = 'application/vnd.oci.image.manifest.v1+json'
INDEX_TYPE = 'application/vnd.oci.image.index.v1+json'


class Hashed:
    """A file that is written to, and the digest of what was."""

    def __init__(self, to):
        self.to, self.sum, self.size = to, hashlib.sha256(), 0

    def write(self, data):
        self.sum.update(data)
        self.size += len(data)
        return self.to.write(data)

    def flush(self):
        self.to.flush()

    @property
    def digest(self):
        return 'sha256:' + self.sum.hexdigest()


def tell(path, name, epoch):
    """The tar's entry of a file."""
    entry = tarfile.TarInfo(name)
    stat = path.lstat()
    entry.mode, entry.mtime = stat.st_mode & 0o7777, epoch
    if path.is_symlink():
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
    elif path.is_dir():
        entry.type = tarfile.DIRTYPE
    elif path.is_file():
        entry.size = stat.st_size
    else:
        raise SystemExit('%s: neither a file, a folder nor a link' % path)
    if name == DATA or name.startswith(DATA + '/'):
        entry.uid = entry.gid = USER
    return entry


def write_layer(root, to, epoch):
    """Writes the folder as a compressed tar; its digest before and after compression, and its size after."""
    packed = Hashed(to)
    with gzip.GzipFile(filename='', mode='wb', compresslevel=6, fileobj=packed, mtime=0) as squeezed:
        plain = Hashed(squeezed)
        with tarfile.open(mode='w|', fileobj=plain, format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(root.rglob('*')):
                entry = tell(path, str(path.relative_to(root)), epoch)
                if entry.isreg():
                    with open(path, 'rb') as f:
                        tar.addfile(entry, f)
                else:
                    tar.addfile(entry)
    return plain.digest, packed.digest, packed.size


def config(args, created, diff_id):
    labels = {
        'org.opencontainers.image.title': 'skep',
        'org.opencontainers.image.description': 'unified storage that every Ceph client can use, in one program',
        'org.opencontainers.image.version': args.version,
        'org.opencontainers.image.licenses': 'Apache-2.0',
        'org.opencontainers.image.created': created,
        **({'org.opencontainers.image.revision': args.revision} if args.revision else {}),
        **({'org.opencontainers.image.source': args.source} if args.source else {}),
    }
    return {
        'created': created,
        'architecture': args.arch,
        'os': 'linux',
        'config': {
            'User': '%d:%d' % (USER, USER),
            'ExposedPorts': {'%d/tcp' % p: {} for p in PORTS},
            'Env': ['PATH=/usr/bin', 'SKEP_DATA=/' + DATA],
            'Entrypoint': ['/usr/bin/skep'],
            'Cmd': ['up'],
            'Volumes': {'/' + DATA: {}},
            'WorkingDir': '/',
            'Labels': labels,
            'StopSignal': 'SIGTERM',
        },
        'rootfs': {'type': 'layers', 'diff_ids': [diff_id]},
        'history': [{'created': created, 'created_by': 'dev/container'}],
    }


def packed_json(value):
    return json.dumps(value, sort_keys=True, separators=(',', ':')).encode()


class Archive:
    """The layout, in one tar."""

    def __init__(self, path, epoch):
        self.tar, self.epoch = tarfile.open(path, 'w', format=tarfile.PAX_FORMAT), epoch
        for folder in ('blobs', 'blobs/sha256'):
            entry = self._entry(folder, 0o755)
            entry.type = tarfile.DIRTYPE
            self.tar.addfile(entry)

    def _entry(self, name, mode, size=0):
        entry = tarfile.TarInfo(name)
        entry.mode, entry.mtime, entry.size = mode, self.epoch, size
        return entry

    def add(self, name, data):
        self.tar.addfile(self._entry(name, 0o644, len(data)), io.BytesIO(data))

    def blob(self, data):
        digest = hashlib.sha256(data).hexdigest()
        self.add('blobs/sha256/' + digest, data)
        return {'digest': 'sha256:' + digest, 'size': len(data)}

    def file(self, path, digest, size):
        with open(path, 'rb') as f:
            self.tar.addfile(self._entry(blob_path(digest), 0o644, size), f)


def blob_path(digest):
    return 'blobs/sha256/' + digest.removeprefix('sha256:')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('root', type=pathlib.Path)
    parser.add_argument('archive', type=pathlib.Path)
    parser.add_argument('--version', required=True)
    parser.add_argument('--arch', required=True)
    parser.add_argument('--revision', default='')
    parser.add_argument('--source', default='')
    args = parser.parse_args()
    epoch = int(os.environ.get('SOURCE_DATE_EPOCH', '0'))
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')
    part = args.archive.with_name(args.archive.name + '.part')
    layer = args.archive.with_name(args.archive.name + '.layer')
    try:
        with open(layer, 'wb') as f:
            diff_id, digest, size = write_layer(args.root, f, epoch)
        archive = Archive(part, epoch)
        archive.add('oci-layout', packed_json({'imageLayoutVersion': '1.0.0'}))
        archive.file(layer, digest, size)
        told = {'mediaType': CONFIG_TYPE, **archive.blob(packed_json(config(args, created, diff_id)))}
        manifest = {'schemaVersion': 2, 'mediaType': MANIFEST_TYPE, 'config': told,
                    'layers': [{'mediaType': LAYER_TYPE, 'digest': digest, 'size': size}]}
        name = 'skep:' + args.version
        entry = {'mediaType': MANIFEST_TYPE, **archive.blob(packed_json(manifest)),
                 'platform': {'architecture': args.arch, 'os': 'linux'},
                 'annotations': {'org.opencontainers.image.ref.name': name, 'io.containerd.image.name': 'localhost/' + name}}
        archive.add('index.json', packed_json({'schemaVersion': 2, 'mediaType': INDEX_TYPE, 'manifests': [entry]}))
        # For `docker load` of before version 25, which knows no layout.
        archive.add('manifest.json', packed_json(
            [{'Config': blob_path(told['digest']), 'RepoTags': [name], 'Layers': [blob_path(digest)]}]))
        archive.tar.close()
        part.rename(args.archive)
    finally:
        part.unlink(missing_ok=True)
        layer.unlink(missing_ok=True)


if __name__ == '__main__':
    main()
