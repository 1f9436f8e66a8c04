"""Operations on whole images by the stock `rbd` tool: how long they take."""
import time

from block.servers import POOL

SNAPSHOTS, CLONES = 10, 100
# What is cloned; what is deleted.
BASE_SIZE, FULL_SIZE = '256M', '1G'
OPERATIONS = ['clone', 'clones', 'flatten', 'delete']
TITLES = {
    'clone': f'clone of an image with {SNAPSHOTS} snapshots', 'clones': f'{CLONES} clones', 'flatten': f'flatten {BASE_SIZE}',
    'delete': f'delete a full image of {FULL_SIZE}',
}


def seconds_of(step):
    began = time.monotonic()
    step()
    return time.monotonic() - began


def measure(server):
    """Seconds of each of OPERATIONS, on images that are made and removed."""
    def fill(image, size, *options):
        server.rbd('create', f'{POOL}/{image}', '--size', size)
        write(image, size, '4M', 'seq')

    def write(image, total, size, pattern):
        server.rbd('bench', '--io-type', 'write', '--io-size', size, '--io-total', total, '--io-pattern', pattern,
                   f'{POOL}/{image}')

    def clone(names):
        for name in names:
            server.rbd('clone', f'{POOL}/base@s{SNAPSHOTS - 1}', f'{POOL}/{name}')
    fill('base', BASE_SIZE)
    for n in range(SNAPSHOTS):
        server.rbd('snap', 'create', f'{POOL}/base@s{n}')
        write('base', '4M', '64K', 'rand')
    server.rbd('snap', 'protect', f'{POOL}/base@s{SNAPSHOTS - 1}')
    fill('full', FULL_SIZE)
    children = [f'child.{n}' for n in range(CLONES)]
    found = {
        'clone': seconds_of(lambda: clone(['first'])),
        'clones': seconds_of(lambda: clone(children)),
        'flatten': seconds_of(lambda: server.rbd('flatten', f'{POOL}/first')),
        'delete': seconds_of(lambda: server.rbd('rm', f'{POOL}/full')),
    }
    for image in ['first', *children]:
        server.rbd('rm', f'{POOL}/{image}')
    server.rbd('snap', 'unprotect', f'{POOL}/base@s{SNAPSHOTS - 1}')
    server.rbd('snap', 'purge', f'{POOL}/base')
    server.rbd('rm', f'{POOL}/base')
    return found
