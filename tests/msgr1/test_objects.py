"""The rados tool by messenger v1."""
from skeptest.again import again

globals().update(again(
    'rados/test_objects.py', 'put_get', 'put_at_offset_and_append_and_truncate', 'xattrs', 'omap', 'ls_sees_every_object_once', 'namespaces_and_locators', 'odd_names', 'missing_object'))
