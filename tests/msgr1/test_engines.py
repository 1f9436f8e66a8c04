"""fio's engines by messenger v1."""
from skeptest.again import again

globals().update(again('fio/test_engines.py'))
