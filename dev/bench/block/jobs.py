"""What is done to each side, and what is seen of it."""
import re
import resource

from block.commands import Failed

# More than a few hundred operations at once only measure a queue.
DEPTH_MAX = 256
PERCENTILES = {'p50_us': '50.000000', 'p99_us': '99.000000', 'p999_us': '99.900000'}
NAMED = {
    'write 4M': (['--rw=write', '--bs=4M', '--iodepth=4'], 'MiB/s'),
    'read 4M': (['--rw=read', '--bs=4M', '--iodepth=4'], 'MiB/s'),
}
VM = {
    'vm fsync': ['--rw=randwrite', '--bs=4k', '--fsync=1'],
}
DEFAULT = ['randwrite 1', 'randwrite 32', 'randread 1', 'randread 32', 'mixed 32', 'clients 4', 'randwrite 64K 16',
           'randread 64K 16', 'write 4M', 'read 4M']
LEAN = ['lean randwrite 1', 'lean randwrite 32', 'lean randread 1', 'lean randread 32']
SWEEP = [f'{rw} {depth}' for rw in ('randwrite', 'randread') for depth in (1, 2, 4, 8, 16, 32)]
HELP = ('[lean] randwrite|randread|mixed [BLOCK] DEPTH (4K; mixed: 70 % reads), '
        'clients DEPTH (16 that write 4K at random, each an image of its own), '
        'lean: by `skep bench rbd` in place of fio, '
        'in a guest: ' + ', '.join(VM) + ', '
        + ', '.join(NAMED))


class Job:
    """A client's options for one job, and how its result is read."""

    def __init__(self, name):
        self.name, self.many, self.lean, self.vm = name, name.startswith('clients '), name.startswith('lean '), name in VM
        if self.vm:
            self.options, self.unit, self.kinds = VM[name], 'IOPS', ['write']
            return
        name = name.removeprefix('lean ')
        if name in NAMED and not self.lean:
            self.options, self.unit = NAMED[name]
            self.kinds = [name.split()[0]]
            return
        m = re.fullmatch(r'(randwrite|randread|mixed|clients)(?: (\d+K))? (\d+)', name)
        if not m or not 1 <= int(m[3]) <= DEPTH_MAX or (self.many and (m[2] or self.lean)):
            raise Failed(f'no job {name!r}; there are: {HELP}')
        rw, block = {'mixed': 'randrw', 'clients': 'randwrite'}.get(m[1], m[1]), m[2] or '4K'
        self.options, self.unit = [f'--rw={rw}', f'--bs={block}', f'--iodepth={m[3]}'], 'IOPS'
        self.lean_options = ['--rw', 'mix' if rw == 'randrw' else rw, '--block-size', block, '--depth', m[3]]
        if rw == 'randrw':
            self.options.append('--rwmixread=70')
        self.kinds = {'randrw': ['write', 'read']}.get(rw, [rw[4:]])

    @property
    def drawn(self):
        """Whether `plot` has a curve for it."""
        return not self.lean and re.fullmatch(r'(randwrite|randread) \d+', self.name) is not None

    @property
    def writes(self):
        return 'write' in self.kinds


def client_cpu():
    """Seconds of processor time of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(server, job, seconds):
    """What a side did and used; None for what it cannot do."""
    before, osds, client = server.usage(), server.usage('osd'), client_cpu()
    found = server.job(job, seconds)
    if found is None:
        return None
    client = client_cpu() - client
    after, osds_after = server.usage(), server.usage('osd')
    server.check_alive()
    sides = [found[kind] for kind in job.kinds]
    # Usage counts the ramp as well, fio's figures do not: per operation over all that was done.
    share = 1 if job.lean else seconds / (seconds + 1)
    operations = sum(s['total_ios'] for s in sides) / share
    if not operations:
        raise Failed(f'{server.name}: {job.name}: no operation ended')
    result = {'value': sum(s['iops'] for s in sides) if job.unit == 'IOPS' else sum(s['bw_bytes'] for s in sides) / 2**20}
    if not job.vm:                             # there a write and its fsync are one
        # Of a mix those of its writes.
        result |= {name: sides[0]['clat_ns']['percentile'][key] / 1000 for name, key in PERCENTILES.items()}
    if server.processes:
        result |= {'cpu_us': (after[0] - before[0]) * 1e6 / operations, 'client_cpu_us': client * 1e6 / operations}
        if job.writes:
            written = found['write']['io_bytes']
            result['written_per_byte'] = (after[1] - before[1]) * share / written
    if osds_after[0]:
        result['osd_cpu_us'] = (osds_after[0] - osds[0]) * 1e6 / operations
    return result

