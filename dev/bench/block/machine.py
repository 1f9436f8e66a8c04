"""A virtual machine under stock QEMU whose fio writes to a disk, each block followed by fsync: what a database in a guest does.

The guest is the lab's (a Debian kernel, its fio); it starts from a file of its own that nothing is written to. Its processor is
emulated: hardware virtualisation hangs on some machines. So its own time is long, and the same for all sides.
"""
import json
import pathlib
import sys
import tempfile

from block.commands import Failed, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / 'lab' / 'src'))

from lab.backends.base import Unsupported                              # noqa: E402
from lab.config import Config                                            # noqa: E402
from lab.guest import GuestMaker                                         # noqa: E402
from lab.process import Scratch, ToolError                               # noqa: E402

PROGRAMS = ['qemu-system-x86_64']
MEMORY_MIB = 256
BOOTS_S = 120


def guest(folder):
    """Kernel, initial RAM disk and root disk, from the cache or built."""
    try:
        with Scratch(pathlib.Path(folder)) as scratch:
            return GuestMaker(Config(), scratch).image()
    except (ToolError, Unsupported) as e:
        raise Failed(f'the guest: {e}') from e


def fio(image, drive, options, seconds, env=None):
    """What fio found in the guest; `drive`: QEMU's blockdev of what it writes to."""
    words = ['filename=/dev/vdb', 'ioengine=psync', 'direct=1', 'norandommap=1', 'time_based=1', f'runtime={seconds}', 'ramp_time=1',
             *(o.removeprefix('--') for o in options)]
    root = {'driver': 'raw', 'node-name': 'root', 'read-only': True, 'file': {'driver': 'file', 'filename': str(image.root)}}
    with tempfile.TemporaryFile() as nothing:
        said = run(['qemu-system-x86_64', '-accel', 'tcg', '-cpu', 'max', '-m', str(MEMORY_MIB), '-nodefaults', '-display', 'none',
                    '-no-reboot', '-kernel', image.kernel, '-initrd', image.initrd,
                    '-append', f"console=ttyS0 quiet panic=-1 lab.do=fio lab.fio={','.join(words)}", '-serial', 'stdio',
                    '-blockdev', json.dumps(root), '-device', 'virtio-blk-pci,drive=root',
                    '-blockdev', json.dumps({**drive, 'node-name': 'disk', 'cache': {'direct': True}}), '-device', 'virtio-blk-pci,drive=disk'],
                   limit=BOOTS_S + 2 * seconds, env=env, stdin=nothing)
    begin, end = said.find('LAB fio-begin'), said.find('LAB fio-end status=0')
    if begin < 0 or end < 0:
        raise Failed(f'the guest ended without a result: {said[-400:]}')
    text = said[begin:end]
    found, = json.loads(text[text.index('{'):text.rindex('}') + 1])['jobs']
    return found
