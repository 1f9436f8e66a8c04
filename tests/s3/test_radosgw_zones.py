"""A stock radosgw 16.2 that is one of two zones: it keeps a log for the other one in queues of the object class `fifo`."""
import pytest

from skeptest.radosgw import GatewayUser, Radosgw
from skeptest.run import wait_until

pytestmark = [pytest.mark.long, pytest.mark.own]
LATER_S = 180
SHARDS = 2


class Zone(Radosgw):
    """Names its zone in all that it does; few shards, so that each has much."""
    place = ()

    def arguments(self):
        return [*super().arguments(), '--rgw-data-log-num-shards', SHARDS, '--rgw-data-log-window', '1', *self.place]

    def make(self):
        here = 'http://127.0.0.1:%d' % self.port
        self.admin('realm', 'create', '--rgw-realm', 'r', '--default')
        self.admin('zonegroup', 'create', '--rgw-zonegroup', 'zg', '--endpoints', here, '--rgw-realm', 'r', '--master', '--default')
        self.admin('zone', 'create', '--rgw-zonegroup', 'zg', '--rgw-zone', 'a', '--endpoints', here, '--master', '--default')
        # It is never there, and the log is kept for it.
        self.admin('zone', 'create', '--rgw-zonegroup', 'zg', '--rgw-zone', 'b', '--endpoints', 'http://127.0.0.1:1')
        self.admin('period', 'update', '--commit', parsed=False)
        self.place = ('--rgw-realm', 'r', '--rgw-zonegroup', 'zg', '--rgw-zone', 'a')
        return self

    def entries(self, shard):
        return self.admin('datalog', 'list', '--shard-id', shard, '--extra-info')


@pytest.fixture
def zone(own, tmp_path):
    zone = Zone(own().start(), tmp_path)
    yield zone.make().start()
    zone.kill()


def test_the_log_for_another_zone_is_kept_and_trimmed(zone):
    s3 = zone.client(GatewayUser(zone, 'zuser'))
    for n in range(6):
        s3.create_bucket(Bucket='bkt%d' % n)
        s3.put_object(Bucket='bkt%d' % n, Key='o', Body=b'x')

    def keys():
        return {row['entry']['key'].split(':')[0] for shard in range(SHARDS) for row in zone.entries(shard)}
    wait_until(lambda: keys() == {'bkt%d' % n for n in range(6)}, LATER_S, 1, 'all buckets to be in the log')
    # It goes on after the gateway was killed.
    zone.kill()
    zone.start()
    s3.put_object(Bucket='bkt0', Key='later', Body=b'y')
    full = max(range(SHARDS), key=lambda shard: len(zone.entries(shard)))
    rows = zone.entries(full)
    assert len(rows) >= 2
    zone.admin('datalog', 'trim', '--shard-id', full, '--end-marker', rows[0]['log_id'], parsed=False)
    left = [row['log_id'] for row in zone.entries(full)]
    assert left[:len(rows) - 1] == [row['log_id'] for row in rows[1:]]
    zone.admin('datalog', 'trim', '--shard-id', full, '--end-marker', left[-1], parsed=False)
    assert not {row['log_id'] for row in zone.entries(full)} & set(left)
