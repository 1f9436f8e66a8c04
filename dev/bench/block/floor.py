"""What the same disk gives without a server: the limit that a ratio is held against.

A write of N copies is N durable writers side by side, each with a file of its own; what they do is divided by N. None waits for
the others, so latency is that of one write, not of the slowest of N, and throughput is an upper bound. A read is a read of one bare
file. Neither a network nor a client is in it: librbd's own time comes on top. Not of mixes and of several clients. A guest's disk is
one bare file.
"""
import json

from block import machine
from block.commands import Failed, run


class Floor:
    """fio on files of the sides' folder."""

    name, tools, processes = 'floor', [], {}

    def __init__(self, folder, args):
        self.dir, self.args, self.start_s = folder, args, None
        folder.mkdir()

    def start(self):
        pass

    def make_images(self):
        """The files, written in full: later writes change no file system's maps."""
        self.fio(['--rw=write', '--bs=4M', '--iodepth=4', '--end_fsync=1'], self.args.copies)

    def fio(self, options, files, seconds=None):
        argv = ['fio', '--ioengine=io_uring', '--direct=1', f'--size={self.args.size}', '--output-format=json', '--eta=never',
                '--group_reporting=1', *options]
        if seconds:
            argv += ['--time_based=1', f'--runtime={seconds}', '--ramp_time=1', '--norandommap=1']
        for n in range(files):
            argv += [f'--name=copy{n}', f'--filename={self.dir}/copy{n}']
        out = run(argv, limit=900)
        found = json.loads(out[out.index('{'):])['jobs']
        if len(found) != 1 or found[0]['error']:
            raise Failed(f"floor: fio ended with error {[job['error'] for job in found]}")
        return found[0]

    def job(self, job, seconds):
        if job.lean:
            return None
        if job.vm:
            drive = {'driver': 'raw', 'file': {'driver': 'file', 'filename': str(self.dir / 'copy0'), 'aio': 'native', 'cache': {'direct': True}}}
            return machine.fio(self.args.guest, drive, job.options, seconds)
        if job.kinds == ['read']:
            return self.fio(job.options, 1, seconds)
        if job.writes and len(job.kinds) == 1 and not job.many:
            found = self.fio([*job.options, '--sync=dsync'], self.args.copies, seconds)
            for key in ('iops', 'bw_bytes', 'total_ios'):
                found['write'][key] /= self.args.copies
            return found
        return None

    def usage(self, which=None):
        return 0, 0, 0

    def check_alive(self):
        pass

    def end(self):
        pass

    def about(self):
        return {'version': run(['fio', '--version']).strip(), 'settings': f'{self.args.copies} files, O_DIRECT, O_DSYNC'}
