"""Work that goes on beside what is done to a server."""
import threading

from skeptest.run import wait_until


class Work:
    """Calls of which each fails if it is carried out twice, one after the other until it is told to end."""

    def __init__(self, step):
        self.done, self.failed, self.ended = 0, [], threading.Event()
        self.step = step
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.ended.is_set():
                self.step(self.done)
                self.done += 1
        except Exception as e:
            self.failed.append(e)

    def goes_on(self, more=2):
        before = self.done
        wait_until(lambda: self.done >= before + more or self.failed, 240, 0.01, 'work that goes on')
        assert not self.failed, self.failed

    def end(self):
        self.ended.set()
        self.thread.join(120)
        assert not self.thread.is_alive() and not self.failed, self.failed
