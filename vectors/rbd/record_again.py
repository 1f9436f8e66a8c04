#!/usr/bin/python3
"""Records cls_gateway_replay.json: calls that stock programs made, made once more to a real Ceph, with what the objects are after them.

usage: record_again.py REPLAY_CLASSES CEPH_CONF POOL CALLS > cls_gateway_replay.json
See recorder.py. CALLS is an earlier recording, or a JSON list of [object, class, method, input in hex] in order, as a capture of wiretap shows them.
"""
from recorder import *

READS = ('bucket_list', 'bucket_check_index', 'bucket_read_olh_log', 'bi_get', 'bi_list', 'bi_log_list', 'gc_list', 'lc_get_entry',
         'lc_get_next_entry', 'lc_list_entries', 'lc_get_head', 'reshard_get', 'reshard_list', 'get_bucket_resharding', 'guard_bucket_resharding',
         'user_usage_log_read', 'list_buckets', 'get_header', 'get_meta', 'part_list', 'get_part_info', 'rgw_gc_queue_list_entries')
# Of larger objects not every state is noted.
SMALL, EVERY = 8, 12

with open(sys.argv[4]) as given:
    calls = json.load(given)
if isinstance(calls, dict):
    calls = [[c['oid'], c['cls'], c['method'], c['in']] for c in calls['steps'] if c['op'] == 'call']
writes = {}
for oid, cls, method, data in calls:
    call(oid, cls, method, bytes.fromhex(data), volatile=True)
    if method in READS:
        continue
    writes[oid] = writes.get(oid, 0) + 1
    rows = rad.omap(oid.encode())[1]
    serial(oid, rows)
    if len(rows) <= SMALL or writes[oid] % EVERY == 0:
        omap(oid)
        header(oid)
finish()
