"""Certificates for tests."""
from skeptest.run import run


def self_signed(place, name):
    """A certificate signed by itself for 127.0.0.1, and its key."""
    crt, key = place / (name + '.crt'), place / (name + '.key')
    run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj',
         '/CN=' + name, '-addext', 'subjectAltName=IP:127.0.0.1', '-out', crt, '-keyout', key])
    return crt, key
