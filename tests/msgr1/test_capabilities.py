"""What capabilities allow and refuse by messenger v1."""
from skeptest.again import again

globals().update(again(
    'auth/test_capabilities.py', 'profile_rbd_on_one_pool', 'allow_r', 'object_prefix', 'no_osd_capability'))
