"""`ceph` commands from a Python that has loaded its modules already.

Half of what a `ceph` costs is the start of its Python. Here one process (for each namespace of networks that the tests are in)
has compiled Debian's /usr/bin/ceph and imported what it imports; each command is a fork of it that runs the tool from its
first line, with its own arguments, environment and outputs. Only its look-up of commands is sped up (below).

Invariants: a command has a process group of its own, ends with the test run and is killed with its group when its limit passes,
as by `skeptest.run`; nothing that one command did is seen by the next.
"""
import array
import atexit
import json
import os
import signal
import socket
import subprocess
import threading

from skeptest.run import LIMIT_S, Result, judged

TOOL = '/usr/bin/ceph'
START_S = 60                                       # for a fork, on a busy machine
MESSAGE_MAX = 1 << 17
SCRIPT = r'''
import array, ctypes, json, os, selectors, signal, socket, sys, traceback
TOOL, MESSAGE_MAX = sys.argv[1], int(sys.argv[2])
PR_SET_PDEATHSIG, CLONE_NEWNET = 1, 0x40000000
libc = ctypes.CDLL(None)
with open(TOOL) as f:
    code = compile(f.read(), TOOL, 'exec')
exec(code, {'__name__': 'loaded', '__file__': TOOL})      # for its imports: not run as a program
import ceph_argparse, copy, types

# Of what a command costs then, two thirds go into looking which of 700 it is: the tool copies each one's arguments first, and parses the list
# of them that the server sends. Here an argument is copied when it is looked at, and a list that was parsed before is not parsed again. All else
# is the tool's own code.
class Lazily:
    def deepcopy(signature):
        return (copy.deepcopy(argument) for argument in signature)

ceph_argparse.matchnum = types.FunctionType(
    ceph_argparse.matchnum.__code__, {**vars(ceph_argparse), 'copy': Lazily}, 'matchnum', ceph_argparse.matchnum.__defaults__)
parse, parsed, told = ceph_argparse.parse_json_funcsigs, {}, os.memfd_create('descriptions')

def parsed_before(text, consumer):
    if (text, consumer) not in parsed:
        parsed[text, consumer] = parse(text, consumer)
        data = json.dumps([text, consumer]).encode()
        os.ftruncate(told, 0)
        os.pwrite(told, data, 0)                   # for those that are forked later
    return parsed[text, consumer]

ceph_argparse.parse_json_funcsigs = parsed_before

def learn():
    data = os.pread(told, os.fstat(told).st_size, 0)
    os.ftruncate(told, 0)
    try:
        text, consumer = json.loads(data)
        if len(parsed) < 8:
            parsed[text, consumer] = parse(text, consumer)
    except ValueError:
        pass                                       # nothing, or two wrote at once
requests = socket.socket(fileno=0)
selector = selectors.DefaultSelector()

def tool(request, fds):
    os.setsid()
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for to, fd in enumerate(fds[:3]):
        os.dup2(fd, to)
    os.environ.clear()
    os.environ.update(request['env'])
    os.chdir(request['cwd'])
    if request['network']:
        with open(request['network']) as namespace:
            assert libc.setns(namespace.fileno(), CLONE_NEWNET) == 0
    sys.argv = [TOOL, *request['args']]
    status = 0
    try:
        exec(code, {'__name__': '__main__', '__file__': TOOL})
    except SystemExit as e:
        status = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

def begin():
    data, ancillary, _, _ = requests.recvmsg(MESSAGE_MAX, socket.CMSG_SPACE(16))
    if not data:
        sys.exit(0)
    fds = array.array('i')
    fds.frombytes(ancillary[0][2])
    if os.fstat(told).st_size:
        learn()
    pid = os.fork()
    if pid == 0:
        tool(json.loads(data), fds)
    for fd in fds[:3]:
        os.close(fd)
    os.write(fds[3], b'%d\n' % pid)
    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, fds[3]))

selector.register(requests, selectors.EVENT_READ)
while True:
    for key, _ in selector.select():
        if key.data is None:
            begin()
            continue
        pid, result = key.data
        _, status = os.waitpid(pid, 0)
        try:
            os.write(result, b'%d\n' % os.waitstatus_to_exitcode(status))
        except BrokenPipeError:
            pass                                   # who asked has gone
        selector.unregister(key.fd)
        os.close(key.fd)
        os.close(result)
'''


class Forker:
    """The process that has everything loaded."""

    def __init__(self):
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # It ends when its socket does, that is with this process; not with the thread that happened to start it.
            self.proc = subprocess.Popen(['/usr/bin/python3', '-c', SCRIPT, TOOL, str(MESSAGE_MAX)], stdin=theirs,
                                         stdout=subprocess.DEVNULL, start_new_session=True,
                                         env={**os.environ, 'PYTHONWARNINGS': 'ignore'})

    def begin(self, args, env, cwd, network, fds):
        request = json.dumps({'args': args, 'env': env, 'cwd': cwd, 'network': network}).encode()
        assert len(request) <= MESSAGE_MAX, 'a command line of %d bytes' % len(request)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))]
        self.requests.sendmsg([request], rights)

    def end(self):
        self.requests.close()
        self.proc.kill()
        self.proc.wait(60)


_lock = threading.Lock()
_forkers = {}                                      # of which namespace of networks


def _forker():
    here = os.stat('/proc/thread-self/ns/net').st_ino
    with _lock:
        forker = _forkers.get(here)
        if forker is None or forker.proc.poll() is not None:
            forker = _forkers[here] = Forker()
        return forker


@atexit.register
def _end_all():
    for forker in _forkers.values():
        forker.end()


def _content(fd):
    size = os.fstat(fd).st_size
    return os.pread(fd, size, 0)


def ceph(args, stdin=b'', timeout=LIMIT_S, check=0, env=None, cwd=None, network=None):
    """`skeptest.run.run` of `ceph` with these arguments; `network`: the file of the namespace that it runs in, if not in ours."""
    argv = ['ceph', *map(str, args)]
    files = [os.memfd_create(name) for name in ('stdin', 'stdout', 'stderr')]
    ours, theirs = socket.socketpair()
    try:
        os.pwrite(files[0], stdin.encode() if isinstance(stdin, str) else stdin, 0)
        with theirs:
            _forker().begin(argv[1:], {**os.environ, **(env or {})}, cwd or os.getcwd(), network, [*files, theirs.fileno()])
        with ours, ours.makefile('r') as said:
            ours.settimeout(START_S)
            pid = int(said.readline())
            try:
                ours.settimeout(timeout)
                status = int(said.readline())
            except TimeoutError:
                os.killpg(pid, signal.SIGKILL)
                raise AssertionError('not finished within %s s: %r'
                                     % (timeout, Result(argv, 'none', _content(files[1]), _content(files[2])))) from None
        return judged(Result(argv, status, _content(files[1]), _content(files[2])), check)
    finally:
        for fd in files:
            os.close(fd)
