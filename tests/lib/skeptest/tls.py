"""Certificates for tests."""
from skeptest.run import run


def self_signed(place, name):
    """A certificate signed by itself for 127.0.0.1, and its key."""
    crt, key = place / (name + '.crt'), place / (name + '.key')
    run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj',
         '/CN=' + name, '-addext', 'subjectAltName=IP:127.0.0.1', '-out', crt, '-keyout', key])
    return crt, key


def authority(place, name):
    """An authority's certificate, and its key."""
    crt, key = place / (name + '-ca.crt'), place / (name + '-ca.key')
    run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj',
         '/CN=authority ' + name, '-addext', 'keyUsage=critical,keyCertSign', '-out', crt, '-keyout', key])
    return crt, key


def certificate(place, of, host):
    """A host's certificate of that authority, and its key."""
    crt, key, asked = place / (host + '.crt'), place / (host + '.key'), place / (host + '.csr')
    run(['openssl', 'req', '-new', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', '/CN=' + host,
         '-addext', 'subjectAltName=DNS:' + host, '-out', asked, '-keyout', key])
    run(['openssl', 'x509', '-req', '-in', asked, '-copy_extensions', 'copy', '-CA', of[0], '-CAkey', of[1], '-CAcreateserial',
         '-days', '2', '-out', crt])
    return crt, key
