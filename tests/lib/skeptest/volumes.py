"""Subvolumes, by the manager's commands."""
import json

from skeptest.cluster import unique


class Driver:
    """What Manila's driver and ceph-csi do: JSON commands to the manager, JSON answers."""

    def __init__(self, cluster, fs):
        self.cluster, self.fs = cluster, fs

    def ask(self, prefix, **args):
        """Return code, output, and what is said beside it."""
        import rados
        command = json.dumps({'prefix': prefix, 'vol_name': self.fs, **args})
        with rados.Rados(conffile=str(self.cluster.conf), name='client.admin') as client:
            code, out, said = client.mgr_command(command, b'', timeout=120)
        return code, out.decode(), said

    def do(self, prefix, **args):
        code, said, status = self.ask(prefix, **args)
        assert code == 0, (prefix, args, code, status)
        return said

    def json(self, prefix, **args):
        return json.loads(self.do(prefix, format='json', **args))

    def create(self, name=None, **args):
        name = name or unique('sub')
        self.do('fs subvolume create', sub_name=name, **args)
        return name

    def path(self, name, **args):
        return self.do('fs subvolume getpath', sub_name=name, **args).strip()


def names(listed):
    return sorted(i['name'] for i in listed)
