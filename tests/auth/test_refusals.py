"""Who is refused: how often it may try, and what it leaves in the log."""
import threading
import time

import pytest

from skeptest.raw import Refused, Server

pytestmark = pytest.mark.own

LOOK_S = 4
# A few a second; 394 a second were answered once.
GUESSES_MAX = 6 * LOOK_S


@pytest.fixture
def skep(own):
    return own().start()


def test_wrong_keys_are_answered_a_few_times_a_second_and_right_ones_at_once(skep):
    server = Server(skep)
    admin = server.entity('client.admin')
    answered, end = [], time.monotonic() + LOOK_S

    def guess():
        while time.monotonic() < end:
            try:
                server.mon(admin.alike(), wrong=1)
                pytest.fail('a wrong key was taken')
            except Refused:
                answered.append(time.monotonic())
            except OSError:
                pass
    guessers = [threading.Thread(target=guess) for _ in range(4)]
    for g in guessers:
        g.start()
    came_in = 0
    while time.monotonic() < end:
        with server.mon(admin.alike()) as mon:
            assert mon.serves()
        came_in += 1
    for g in guessers:
        g.join(60)
    assert 0 < len([t for t in answered if t < end]) <= GUESSES_MAX
    # Each took less than it would have waited behind a guesser, however slow the machine is.
    assert came_in >= 2


def test_a_clients_name_is_no_line_of_the_log(skep):
    server = Server(skep)
    liar = server.entity('client.admin').alike(id='x\n2026-01-01T00:00:00Z ERROR forged\x1b[2J')
    with pytest.raises(Refused):
        server.mon(liar)
    log = skep.log.read_text()
    assert 'forged' in log, 'what was refused is in the log'
    assert not [line for line in log.splitlines() if 'ERROR forged' in line and 'x\\n2026' not in line]
    assert '\x1b' not in log


def test_refusals_do_not_fill_the_log(skep):
    server = Server(skep)
    who = server.entity('client.admin')
    server.login(who)
    from skeptest.wire import OSD
    bad = who.tickets[OSD].altered(blob=bytes(64))

    start = time.monotonic()

    def knock():
        while time.monotonic() < start + LOOK_S:
            try:
                server.osd(who.alike(), 0, ticket=bad)
            except (Refused, OSError):
                pass
    knockers = [threading.Thread(target=knock) for _ in range(6)]
    before = len(skep.log.read_text().splitlines())
    for k in knockers:
        k.start()
    for k in knockers:
        k.join(60)
    lines = len(skep.log.read_text().splitlines()) - before
    assert lines <= 40 + 3 * (time.monotonic() - start), lines
