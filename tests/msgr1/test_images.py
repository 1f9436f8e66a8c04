"""The rbd tool by messenger v1."""
from skeptest.again import again

globals().update(again(
    'rbd/test_images.py', 'create_and_info', 'import_export', 'resize', 'diff', 'bench', 'status_shows_the_watcher_of_an_open_image', 'namespaces'))
