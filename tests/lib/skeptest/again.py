"""Tests of another folder, run again where fixtures of the same names mean something else.

    globals().update(again('rados/test_objects.py', 'xattrs', 'omap'))      # without names: all of them
"""
import importlib.util
import pathlib

TESTS = pathlib.Path(__file__).parents[2]


def again(path, *names):
    """What that file defines, of its tests those called so; a name that there is not fails."""
    spec = importlib.util.spec_from_file_location('again.' + path.replace('/', '.').removesuffix('.py'), TESTS / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    wanted = {'test_' + name for name in names}
    missing = wanted - set(vars(module))
    assert not missing, '%s has no %s' % (path, ', '.join(sorted(missing)))
    return {name: value for name, value in vars(module).items()
            if not name.startswith('__') and (not wanted or not name.startswith('test_') or name in wanted)}
