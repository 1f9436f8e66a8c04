"""The manifests for Kubernetes: by its schemas, and whether what they name fits together. No cluster runs here."""
import os
import pathlib
import tomllib

import pytest
import yaml

from skeptest.run import run
from skeptest.skep import find_binary

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'packaging/kubernetes'
BASE = FOLDER / 'base'
FILES = sorted(p for p in FOLDER.rglob('*.yaml') if p.name != 'kustomization.yaml')


def validate(path, check=0):
    program = os.environ.get('SKEP_TEST_KUBERNETES')
    if not program:
        pytest.skip('needs SKEP_TEST_KUBERNETES, which dev/test sets')
    return run([program, '--strict', path], check=check)


@pytest.fixture(scope='module')
def all_of():
    """What `kubectl apply -k` gives, by kind: one of each."""
    kustomization = yaml.safe_load((BASE / 'kustomization.yaml').read_text())
    here = {p.name for p in BASE.glob('*.yaml')} - {'kustomization.yaml'}
    assert set(kustomization['resources']) == here
    docs = [d for name in kustomization['resources'] for d in yaml.safe_load_all((BASE / name).read_text())]
    found = {d['kind']: d for d in docs}
    assert len(found) == len(docs)
    return {'kustomization': kustomization, **found}


@pytest.mark.parametrize('path', FILES, ids=lambda p: '%s/%s' % (p.parent.name, p.name))
def test_a_manifest_is_one(path):
    validate(path)


def test_what_is_none_is_refused(tmp_path):
    wrong = yaml.safe_load((BASE / 'statefulset.yaml').read_text())
    wrong['spec']['template']['spec']['hostnetwork'] = wrong['spec']['template']['spec'].pop('hostNetwork')
    (tmp_path / 'wrong.yaml').write_text(yaml.safe_dump(wrong))
    assert 'hostnetwork' in repr(validate(tmp_path / 'wrong.yaml', check='fails'))


def test_what_they_name_is_there(all_of):
    stateful, service = all_of['StatefulSet'], all_of['Service']
    pod = stateful['spec']['template']
    labels = pod['metadata']['labels']
    for selector in (stateful['spec']['selector']['matchLabels'], service['spec']['selector'],
                     all_of['PodDisruptionBudget']['spec']['selector']['matchLabels']):
        assert selector.items() <= labels.items()
    assert stateful['spec']['serviceName'] == service['metadata']['name']
    # Addresses of monitors are the nodes' own: no address stands for several.
    assert service['spec']['clusterIP'] == 'None' and pod['spec']['hostNetwork'] is True
    [container] = pod['spec']['containers']
    ports = {p['name']: p['containerPort'] for p in container['ports']}
    assert ports == {p['name']: p['port'] for p in service['spec']['ports']} == {'mon': 3300, 'mon-v1': 6789}
    assert all(p['hostPort'] == p['containerPort'] for p in container['ports'])

    [image] = all_of['kustomization']['images']
    assert image['name'] == container['image'] and image['newTag'] == run([find_binary(), '--version']).out.split()[1]
    volumes = {v['name'] for v in pod['spec']['volumes']} | {c['metadata']['name'] for c in stateful['spec']['volumeClaimTemplates']}
    assert {m['name'] for m in container['volumeMounts']} == volumes
    assert pod['spec']['volumes'][0]['configMap']['name'] == all_of['ConfigMap']['metadata']['name']
    local = list(yaml.safe_load_all((FOLDER / 'examples/local-volumes.yaml').read_text()))
    assert {d.get('metadata', {}).get('name') for d in local if d['kind'] == 'StorageClass'} == \
        {c['spec']['storageClassName'] for c in stateful['spec']['volumeClaimTemplates']}


def test_the_program_takes_what_it_is_given(all_of, tmp_path):
    """A file of options for each pod, and the arguments, as the kubelet fills them in."""
    stateful, options = all_of['StatefulSet'], all_of['ConfigMap']['data']
    [container] = stateful['spec']['template']['spec']['containers']
    pods = ['skep-%d' % n for n in range(stateful['spec']['replicas'])]
    assert set(options) == {pod + '.toml' for pod in pods}
    # All join; what is for the first time alone differs in that one word of one pod.
    assert all(tomllib.loads(text)['join'] is True for text in options.values())
    once = yaml.safe_load((FOLDER / 'first/kustomization.yaml').read_text())
    assert (once['resources'], once['patches']) == (['../base'], [{'path': 'options.yaml'}])
    patch = yaml.safe_load((FOLDER / 'first/options.yaml').read_text())
    names = lambda d: (d['kind'], d['metadata']['name'])
    assert names(patch) == names(all_of['ConfigMap']) and patch['metadata']['namespace'] == all_of['kustomization']['namespace']
    assert patch['data'] == {'skep-0.toml': options['skep-0.toml'].replace('join = true', 'create = true')}
    [mount] = [m for m in container['volumeMounts'] if m['name'] == 'options']
    assert mount['subPathExpr'] == '$(POD_NAME).toml' and '--config=' + mount['mountPath'] in container['args']
    known = run([find_binary(), 'up', '--help']).out.split()
    assert all('--' + option in known for text in options.values() for option in tomllib.loads(text))
    for text in [*options.values(), *patch['data'].values()]:
        path = tmp_path / 'skep.toml'
        path.write_text(text)
        args = [a.replace('$(HOST_IP)', '192.0.2.11').replace('$(NODE_NAME)', 'node1').replace(mount['mountPath'], str(path))
                for a in container['args']]
        assert args[0] == 'up' and not any('$' in a for a in args), args
        # All of it is understood: what is in the way is the folder, which comes after.
        said = run([find_binary(), *args, '--data', '/proc/none'], check=1)
        assert '/proc/none' in said.err, said
    probes = [container[p]['exec']['command'] for p in ('startupProbe', 'readinessProbe', 'livenessProbe')]
    for command in probes:
        assert command[0] == '/usr/bin/skep'
        said = run([find_binary(), *command[1:], '--data', tmp_path / 'none'], check=1)
        assert 'unexpected argument' not in said.err, said
