"""Keys and rights that are taken from connected clients of messenger v1."""
import pytest

from skeptest.again import again

globals().update(again('auth/test_revocation.py'))
pytestmark = pytest.mark.long
