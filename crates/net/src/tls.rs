//! TLS for those who serve HTTP: a certificate and its key in files, or in one, read again when they change.
//!
//! Files that cannot be used any more do not end what serves: the last good pair stays, and the log says why.

use crate::http::Wire;
use hyper_util::rt::TokioIo;
use io::{files, task};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How often is looked whether the files have changed.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const FILE_BYTES_MAX: u64 = 1 << 20;
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

type Texts = (Vec<u8>, Vec<u8>);

/// A connection's bytes, out of TLS, as hyper wants them.
pub type TlsWire = TokioIo<TlsStream<TokioIo<Wire>>>;

/// What new connections are shown. Clones are the same.
#[derive(Debug, Clone)]
pub struct Certificate(watch::Receiver<Arc<ServerConfig>>);

impl Certificate {
    /// Reads both files, which may be one, and looks at them from then on as long as clones live. `who` serves with it, as the log
    /// calls it.
    pub async fn open(who: &'static str, certificate: PathBuf, key: PathBuf) -> Result<Self, String> {
        let (texts, is_open) = read(&certificate, &key).await?;
        let (put, get) = watch::channel(config(&texts)?);
        if is_open {
            warn_of(who, &key);
        }
        task::spawn_local(follow(who, (certificate, key), texts, put));
        Ok(Self(get))
    }

    /// The client's handshake, for which it has [`HANDSHAKE_WITHIN`].
    pub async fn accept(&self, wire: Wire) -> std::io::Result<TlsWire> {
        let acceptor = TlsAcceptor::from(self.0.borrow().clone());
        let late = |_| Error::new(ErrorKind::TimedOut, "no handshake in time");
        let accepted = task::timeout(HANDSHAKE_WITHIN, acceptor.accept(TokioIo::new(wire)));
        Ok(TokioIo::new(accepted.await.map_err(late)??))
    }
}

async fn follow(
    who: &'static str,
    (certificate, key): (PathBuf, PathBuf),
    mut known: Texts,
    put: watch::Sender<Arc<ServerConfig>>,
) {
    let mut said = String::new();
    while !put.is_closed() {
        task::sleep(LOOK_EVERY).await;
        let now = match read(&certificate, &key).await {
            Ok((texts, _)) if texts == known => Ok(None),
            Ok((texts, is_open)) => config(&texts).map(|c| Some((c, texts, is_open))),
            Err(e) => Err(e),
        };
        match now {
            Ok(None) => said.clear(),
            Ok(Some((config, texts, is_open))) => {
                tracing::info!("{who}: the certificate in {} is used now", certificate.display());
                if is_open {
                    warn_of(who, &key);
                }
                put.send_replace(config);
                (known, said) = (texts, String::new());
            }
            Err(e) if e == said => {}
            Err(e) => {
                tracing::warn!("{who}: the certificate before stays in use: {e}");
                said = e;
            }
        }
    }
}

fn warn_of(who: &str, key: &Path) {
    let key = key.display();
    tracing::warn!("{who}: others than its owner may open {key}, which has the private key: chmod 600 it");
}

/// And whether the key is open to others. Aside, for a disk may hang.
async fn read(certificate: &Path, key: &Path) -> Result<(Texts, bool), String> {
    let (certificate, key) = (certificate.to_path_buf(), key.to_path_buf());
    task::aside("certificate", move || both(&certificate, &key))
        .await
        .map_err(|e| e.to_string())?
}

fn both(certificate: &Path, key: &Path) -> Result<(Texts, bool), String> {
    let text = one(certificate)?;
    // One file is read once: it may be replaced between two reads.
    let secret = match certificate == key {
        true => text.clone(),
        false => one(key)?,
    };
    let is_open = files::is_open_to_others(key).map_err(|e| format!("{}: {e}", key.display()))?;
    Ok(((text, secret), is_open))
}

fn one(path: &Path) -> Result<Vec<u8>, String> {
    let read = files::read_bytes(path, FILE_BYTES_MAX).map_err(|e| format!("{}: {e}", path.display()))?;
    read.ok_or_else(|| format!("{} is not there", path.display()))
}

fn config((certificate, key): &Texts) -> Result<Arc<ServerConfig>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    // What the library says of it may quote the file.
    let chain = chain.map_err(|_| "no certificate in PEM".to_string())?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| "no key in PEM".to_string())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|b| b.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|e| format!("certificate and key are no pair: {e}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_told_apart() {
        let make = || {
            let key = rcgen::KeyPair::generate().unwrap();
            let params = rcgen::CertificateParams::new(vec!["store.example".to_string()]).unwrap();
            let certificate = params.self_signed(&key).unwrap();
            (certificate.pem().into_bytes(), key.serialize_pem().into_bytes())
        };
        let (a, b) = (make(), make());
        assert!(config(&a).is_ok());
        // Certificate and key in one file, in either order.
        for both in [[&a.0[..], &a.1[..]].concat(), [&a.1[..], &a.0[..]].concat()] {
            assert!(config(&(both.clone(), both)).is_ok());
        }
        // Its newlines were lost.
        let one_line = String::from_utf8(a.1.clone()).unwrap().replace('\n', "");
        for (certificate, key, why) in [
            (&a.0, &b.1[..], "no pair"),
            (&a.0, b"no key", "no key in PEM"),
            (&a.0, &a.0[..], "no key in PEM"),
            (&a.0, one_line.as_bytes(), "no key in PEM"),
            (&Vec::new(), &a.1[..], "no pair"),
        ] {
            let refused = config(&(certificate.clone(), key.to_vec())).unwrap_err();
            assert!(refused.contains(why) && refused.len() < 120, "{refused}");
        }
    }
}
