"""QEMU's block tools by messenger v1."""
from skeptest.again import again

globals().update(again(
    'qemu/test_block.py', 'convert_in_and_out', 'patterns_over_object_edges', 'overlapping_writes_in_flight', 'image_on_clone'))
