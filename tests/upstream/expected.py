"""What is left out of Ceph's own tests, and what fails, each with its reason.

Left out is by name and not run. What fails is run, has to fail, and is counted as failed in docs/compatibility.md; one that
passes after all is to be taken from the list, which the test says.
"""
TIERING = 'cache tiering is not served'
DEBUG_ONLY = 'a class for tests, which a stock OSD does not load'

# Programs of ceph-test that need no cluster, or another service, are not among these.
PROGRAMS = (
    'ceph_test_cls_2pc_queue', 'ceph_test_cls_cas', 'ceph_test_cls_cmpomap', 'ceph_test_cls_hello', 'ceph_test_cls_journal', 'ceph_test_cls_lock', 'ceph_test_cls_log',
    'ceph_test_cls_numops', 'ceph_test_cls_queue', 'ceph_test_cls_rbd', 'ceph_test_cls_refcount', 'ceph_test_cls_rgw', 'ceph_test_cls_rgw_gc', 'ceph_test_cls_rgw_stats',
    'ceph_test_rados_api_aio', 'ceph_test_rados_api_aio_pp', 'ceph_test_rados_api_asio',
    'ceph_test_rados_api_c_read_operations', 'ceph_test_rados_api_c_write_operations',
    'ceph_test_rados_api_cmd', 'ceph_test_rados_api_cmd_pp', 'ceph_test_rados_api_io', 'ceph_test_rados_api_io_pp',
    'ceph_test_rados_api_list', 'ceph_test_rados_api_lock', 'ceph_test_rados_api_lock_pp',
    'ceph_test_rados_api_misc', 'ceph_test_rados_api_misc_pp', 'ceph_test_rados_api_pool',
    'ceph_test_rados_api_service', 'ceph_test_rados_api_service_pp',
    'ceph_test_rados_api_snapshots', 'ceph_test_rados_api_snapshots_pp',
    'ceph_test_rados_api_stat', 'ceph_test_rados_api_stat_pp',
    'ceph_test_rados_api_watch_notify', 'ceph_test_rados_api_watch_notify_pp',
    'ceph_test_rados_striper_api_aio', 'ceph_test_rados_striper_api_io', 'ceph_test_rados_striper_api_striping',
)
# ceph_test_librbd takes most of an hour: in pieces, by filter. What is in none of them is in the last.
LIBRBD = 'ceph_test_librbd'
PIECES = {
    'api': 'TestLibRBD.*',
    'luks': '*LUKS*:*Encrypt*',
    'diff': 'DiffIterateTest/*',
    'internal': 'TestInternal.*:TestImageWatcher.*:TestObjectMap.*:TestOperations.*:TestTrash.*:TestJournal*',
    'copies': 'TestDeepCopy.*:TestMigration.*',
}
# A part that says much in little time, for CI.
SAMPLE = ('ceph_test_cls_hello', 'ceph_test_cls_rbd', 'ceph_test_cls_journal', 'ceph_test_rados_api_c_read_operations',
          'ceph_test_rados_api_c_write_operations', 'ceph_test_rados_api_io', 'ceph_test_rados_api_stat_pp')

# Whole programs that are not run, for the page.
PROGRAMS_LEFT_OUT = {
    'ceph_test_rados_api_tier_pp': TIERING,
    'ceph_test_rados_api_cls_remote_reads': DEBUG_ONLY,
    'ceph_test_cls_sdk': DEBUG_ONLY,
    'ceph_test_cls_fifo': 'in no Debian package of ceph-test; what the class does was recorded by vectors/rbd/record_fifo.py',
    'ceph_test_cls_lua': 'a class that a stock OSD does not load',
}

# program (or a pattern of them), case, reason.
LEFT_OUT = (
    ('ceph_test_rados_api_pool', 'LibRadosPools.PoolGetBaseTier', TIERING),
    (LIBRBD + '*', 'TestLibRBD.ListChildrenTiered', TIERING),
    ('ceph_test_rados_api_watch_notify_pp', 'LibRadosWatchNotifyPPTests/LibRadosWatchNotifyPP.*/1', TIERING),
)
FAILS = ()

# Passes or not by chance, on a real Ceph as well.
FLAKY = (
    ('ceph_test_rados_striper_api_aio', '*', "the client's libradosstriper gives back memory that a thread still waits on"),
    ('ceph_test_cls_queue', 'TestClsQueue.QueueFullDequeue',
     'the test stops taking out as soon as the last 50 are put in, also where it has not looked since'),
)

# On a real 16.2.
REAL_LEFT_OUT = (
    ('*', '*ZeroLenZero*', 'an OSD of 16.2 aborts'),
)
