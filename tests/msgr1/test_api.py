"""python3-rados by messenger v1."""
from skeptest.again import again

globals().update(again('api/test_rados.py'))
