"""Keys and rights that are taken from connected clients of messenger v1."""
from skeptest.again import again

globals().update(again('auth/test_revocation.py'))
