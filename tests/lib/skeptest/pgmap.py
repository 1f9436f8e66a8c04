"""The PG map as `ceph pg getmap` gives it, read into what `ceph pg dump -f json` shows of it (docs/protocol/monitor.md)."""
import struct
import time

STATFS = ('total', 'available', 'internally_reserved', 'allocated', 'data_stored', 'data_compressed',
          'data_compressed_allocated', 'data_compressed_original', 'omap_allocated', 'internal_metadata')
SUM = ('num_bytes', 'num_objects', 'num_object_clones', 'num_object_copies', 'num_objects_missing_on_primary',
       'num_objects_degraded', 'num_objects_unfound', 'num_read', 'num_read_kb', 'num_write', 'num_write_kb')


class Reader:
    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def take(self, form):
        values = struct.unpack_from('<' + form, self.raw, self.at)
        self.at += struct.calcsize('<' + form)
        return values if len(values) > 1 else values[0]

    def part(self, *wanted):
        """What an envelope of one of these versions holds."""
        version, _, size = self.take('BBI')
        assert version in wanted, (version, wanted)
        inner = Reader(self.raw[self.at:self.at + size])
        self.at += size
        return inner

    def ints(self):
        return [self.take('i') for _ in range(self.take('I'))]

    def version(self):
        number, epoch = self.take('QI')
        return "%d'%d" % (epoch, number)

    def time(self):
        seconds, nanos = self.take('II')
        if not seconds:
            return '0.%06d' % (nanos // 1000)
        return time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds)) + '.%06d+0000' % (nanos // 1000)

    def end(self):
        assert self.at == len(self.raw), (self.at, len(self.raw))


def statfs(r):
    inner = r.part(1)
    values = dict(zip(STATFS, inner.take('10q')))
    inner.end()
    return values


def pg(r):
    s = {'version': r.version(), 'reported_seq': r.take('Q'), 'reported_epoch': r.take('I')}
    state = r.take('I')
    s.update(log_start=r.version(), ondisk_log_start=r.version(), created=r.take('I'), last_epoch_clean=r.take('I'))
    assert r.take('BQIi')[0] == 1
    s.update(parent_split_bits=r.take('I'), last_scrub=r.version(), last_scrub_stamp=r.time())
    collection = r.part(2)
    s['stat_sum'] = dict(zip(SUM, collection.part(20).take('11q')))
    assert collection.take('I') == 0
    collection.end()
    s.update(log_size=r.take('q'), ondisk_log_size=r.take('q'), up=r.ints(), acting=r.ints())
    for key in ('last_fresh', 'last_change', 'last_active', 'last_clean', 'last_unstale'):
        s[key] = r.time()
    s.update(mapping_epoch=r.take('I'), last_deep_scrub=r.version(), last_deep_scrub_stamp=r.time(), stats_invalid=r.take('?'))
    s.update(last_clean_scrub_stamp=r.time(), last_became_active=r.time())
    r.take('?')
    s.update(up_primary=r.take('i'), acting_primary=r.take('i'))
    r.take('??')
    s.update(blocked_by=r.ints(), last_undegraded=r.time(), last_fullsized=r.time())
    r.take('?')
    s.update(last_peered=r.time(), last_became_peered=r.time())
    r.take('?')
    s['snaptrimq_len'] = r.take('I')
    state |= r.take('I') << 32
    s['purged_snaps'] = [dict(zip(('start', 'length'), map(str, r.take('QQ')))) for _ in range(r.take('I'))]
    r.take('?')
    # Where the objects of a group are that waits: nobody's here.
    assert r.take('II') == (0, 0)
    r.end()
    return s, state


def osd(r):
    s = {}
    s['kb'], s['kb_used'], s['kb_avail'] = r.take('3Q')
    s['snap_trim_queue_len'], s['num_snap_trimming'] = r.take('II')
    s['hb_peers'] = r.ints()
    assert r.ints() == []
    histogram = r.part(1)
    histogram.ints()
    histogram.end()
    s['perf_stat'] = dict(zip(('commit_latency_ns', 'apply_latency_ns'), r.part(2).take('QQ')))
    s['up_from'], s['seq'], s['num_pgs'] = r.take('IQI')
    s['kb_used_data'], s['kb_used_omap'], s['kb_used_meta'] = r.take('3Q')
    s['statfs'] = statfs(r)
    for _ in range(r.take('I')):
        assert r.take('iI')[1] == 0
    s['num_shards_repaired'] = r.take('Q')
    s['num_osds'], s['num_per_pool_osds'], s['num_per_pool_omap_osds'] = r.take('III')
    for _ in range(r.take('I')):
        r.take('22I')
    r.end()
    return s


def read(raw):
    """The map, and the states of its groups as numbers."""
    outer = Reader(raw)
    r = outer.part(8)
    outer.end()
    out, states = {'version': r.take('Q'), 'pgs': {}, 'osds': {}, 'pools': {}}, {}
    for _ in range(r.take('I')):
        version, pool, seed, _ = r.take('BQIi')
        assert version == 1
        name = '%d.%x' % (pool, seed)
        out['pgs'][name], states[name] = pg(r.part(26))
    for _ in range(r.take('I')):
        number = r.take('i')
        out['osds'][number] = osd(r.part(14))
    out['last_osdmap_epoch'], out['last_pg_scan'] = r.take('II')
    out['stamp'] = r.time()
    for _ in range(r.take('I')):
        pool, number = r.take('qi')
        out['pools'][pool, number] = statfs(r)
    r.end()
    return out, states
