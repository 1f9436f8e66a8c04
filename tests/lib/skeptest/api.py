"""Calling python3-rados and python3-rbd under a time limit.

librados blocks in C for as long as a server is silent, and starts threads, so no test calls it in the
test runner's own process: `in_child` runs a function in a forked child and brings its exception home.
"""
import multiprocessing
import queue
import traceback

_fork = multiprocessing.get_context('fork')


def in_child(function, *args, timeout=90):
    """Runs `function(*args)` in a child process; returns its value, fails with its traceback."""
    answers = _fork.Queue()

    def body():
        try:
            answers.put((True, function(*args)))
        except BaseException:                            # noqa: B902 - carried to the parent as text
            answers.put((False, traceback.format_exc()))

    child = _fork.Process(target=body, daemon=True)
    child.start()
    try:
        good, value = answers.get(timeout=timeout)
    except queue.Empty:
        good, value = False, 'no answer within %s s' % timeout
    child.join(5)
    if child.is_alive():
        child.kill()
        child.join(60)
    assert good, value
    return value


def connect(cluster, **conf):
    """A connected librados handle; only for code that runs under `in_child`."""
    import rados
    handle = rados.Rados(conffile=cluster.conf, name=conf.pop('name', 'client.admin'),
                         conf={k: str(v) for k, v in conf.items()})
    handle.connect(timeout=60)
    return handle
