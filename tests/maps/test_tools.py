"""Ceph's own map tools read what our encoder wrote, print what our printer prints, and place as we place.

`maptool` is an example program of the crate `types` (SKEP_MAPTOOL names a built one, ./dev/test does; else cargo builds it).
No server runs here. The maps that a running Skep serves are looked at in conformance/ (tools/check-maps).
"""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRUSH = ROOT / 'vectors/placement/crush'
OSDMAPS = ROOT / 'vectors/placement/osdmap'

pytestmark = pytest.mark.skipif(not shutil.which('crushtool') or not shutil.which('osdmaptool'),
                                reason='crushtool and osdmaptool (package ceph-base) are not installed')


def run(*cmd):
    done = subprocess.run([str(c) for c in cmd], capture_output=True, timeout=120)
    assert done.returncode == 0, '%s\n%s' % (' '.join(map(str, cmd)), done.stderr.decode()[-2000:])
    return done.stdout.decode()


@pytest.fixture(scope='module')
def maptool():
    built = os.environ.get('SKEP_MAPTOOL')
    if not built:
        subprocess.run(['cargo', 'build', '-q', '-p', 'types', '--example', 'maptool'], cwd=ROOT, check=True,
                       timeout=1800)
        meta = json.loads(run('cargo', 'metadata', '--no-deps', '--format-version', '1', '--manifest-path',
                              ROOT / 'Cargo.toml'))
        built = meta['target_directory'] + '/debug/examples/maptool'
    return lambda *words: run(built, *words)


@pytest.mark.parametrize('name', sorted(p.stem for p in CRUSH.glob('*.txt')))
def test_crush_text_compiles_to_the_bytes_of_crushtool(maptool, tmp_path, name):
    maptool('crush-compile', CRUSH / (name + '.txt'), tmp_path / 'ours')
    run('crushtool', '-c', CRUSH / (name + '.txt'), '-o', tmp_path / 'theirs')
    assert (tmp_path / 'ours').read_bytes() == (tmp_path / 'theirs').read_bytes()


@pytest.mark.parametrize('name', ['lab6', 'lab9', 'craft_chooseargs'])
def test_crush_map_of_an_osd_map_goes_through_text(maptool, tmp_path, name):
    maptool('osdmap-export-crush', OSDMAPS / (name + '.bin'), tmp_path / 'crush')
    theirs = run('crushtool', '-d', tmp_path / 'crush')
    assert maptool('crush-decompile', tmp_path / 'crush') == theirs
    (tmp_path / 'text').write_text(theirs)
    maptool('crush-compile', tmp_path / 'text', tmp_path / 'ours')
    run('crushtool', '-c', tmp_path / 'text', '-o', tmp_path / 'theirs')
    assert (tmp_path / 'ours').read_bytes() == (tmp_path / 'theirs').read_bytes()


def test_edited_crush_map(maptool, tmp_path):
    maptool('crush-edit', tmp_path / 'crush')
    text = run('crushtool', '-d', tmp_path / 'crush')
    assert maptool('crush-decompile', tmp_path / 'crush') == text
    (tmp_path / 'text').write_text(text)
    run('crushtool', '-c', tmp_path / 'text', '-o', tmp_path / 'again')
    again = run('crushtool', '-d', tmp_path / 'again')
    # The tool sums rounded weights anew, so only these lines may differ.
    unsummed = lambda t: re.sub(r'(\t# weight|\titem [hr]\S* weight) .*', r'\1', t)
    assert unsummed(again) == unsummed(text)
    stats = run('crushtool', '-i', tmp_path / 'crush', '--test', '--show-statistics', '--num-rep', '3')
    assert len(re.findall(r'result size == 3:\s+1024/1024', stats)) == 3, stats


@pytest.mark.parametrize('osds', [1, 3, 12])
def test_map_of_a_new_cluster(maptool, tmp_path, osds):
    path = tmp_path / 'osdmap'
    maptool('osdmap-new', path, osds)
    text = run('osdmaptool', path, '--print')
    assert "pool 1 'rbd' replicated size %d" % min(osds, 3) in text
    assert len(re.findall(r'^osd\.\d+ up   in  weight 1 ', text, re.M)) == osds
    dump = run('osdmaptool', path, '--dump', 'json')
    dump = json.JSONDecoder().raw_decode(dump[dump.index('{'):])[0]
    assert dump['require_osd_release'] == 'pacific' and dump['min_compat_client'] == 'jewel'
    theirs = run('osdmaptool', path, '--test-map-pgs-dump-all')
    theirs = [' '.join(line.split()) for line in theirs.splitlines() if re.match(r'\d+\.[0-9a-f]+\s+raw', line)]
    ours = [' '.join(line.split()) for line in maptool('osdmap-pgs', path).splitlines()]
    assert ours == theirs and len(ours) == 32


def test_monitor_map(maptool, tmp_path):
    maptool('monmap-new', tmp_path / 'monmap')
    text = run('monmaptool', '--print', tmp_path / 'monmap')
    assert 'fsid 30313233-3435-3637-3839-616263646566' in text
    assert 'min_mon_release 16 (pacific)' in text
    assert '0: v2:127.0.0.1:3300/0 mon.b\n1: v2:127.0.0.1:3301/0 mon.a\n' in text, text
