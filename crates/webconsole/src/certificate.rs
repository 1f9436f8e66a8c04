//! The certificate that the console shows: read from files, read again when they change, or made here.
//!
//! Files that cannot be used any more do not end what serves: the last good pair stays, and the log says why.

use io::{Clock, files, task};
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often is looked whether the files have changed.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How long one that was made here is good.
const GOOD_YEARS: i32 = 10;
const YEAR: u64 = 31_556_952;

type Texts = (Vec<u8>, Vec<u8>);

/// What new connections are shown. Clones are the same.
#[derive(Debug, Clone)]
pub struct Certificate(watch::Receiver<Arc<ServerConfig>>);

impl Certificate {
    /// Reads both files, and looks at them from then on as long as clones live.
    pub async fn open(certificate: PathBuf, key: PathBuf) -> Result<Self, String> {
        let texts = read(&certificate, &key).await?;
        let (put, get) = watch::channel(config(&texts)?);
        task::spawn_local(follow(certificate, key, texts, put));
        Ok(Self(get))
    }

    pub fn now(&self) -> Arc<ServerConfig> {
        self.0.borrow().clone()
    }
}

async fn follow(certificate: PathBuf, key: PathBuf, mut known: Texts, put: watch::Sender<Arc<ServerConfig>>) {
    let mut said = String::new();
    while !put.is_closed() {
        task::sleep(LOOK_EVERY).await;
        let now = match read(&certificate, &key).await {
            Ok(texts) if texts == known => Ok(None),
            Ok(texts) => config(&texts).map(|c| Some((c, texts))),
            Err(e) => Err(e),
        };
        match now {
            Ok(None) => said.clear(),
            Ok(Some((config, texts))) => {
                tracing::info!(
                    "console: the certificate in {} is used now",
                    certificate.display()
                );
                put.send_replace(config);
                (known, said) = (texts, String::new());
            }
            Err(e) if e == said => {}
            Err(e) => {
                tracing::warn!("console: the certificate before stays in use: {e}");
                said = e;
            }
        }
    }
}

/// Aside, for a disk may hang.
async fn read(certificate: &Path, key: &Path) -> Result<Texts, String> {
    let (certificate, key) = (certificate.to_path_buf(), key.to_path_buf());
    let both = move || Ok((one(&certificate)?, one(&key)?));
    task::aside("certificate", both)
        .await
        .map_err(|e| e.to_string())?
}

fn one(path: &Path) -> Result<Vec<u8>, String> {
    let read = files::read_bytes(path, FILE_BYTES_MAX).map_err(|e| format!("{}: {e}", path.display()))?;
    read.ok_or_else(|| format!("{} is not there", path.display()))
}

fn config((certificate, key): &Texts) -> Result<Arc<ServerConfig>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|e| format!("no certificate in PEM: {e}"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| format!("no key in PEM: {e}"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|b| b.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|e| format!("certificate and key are no pair: {e}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Certificate and key, in PEM, for these names and addresses, signed by nobody else.
pub fn self_signed(names: &[String], ips: &[IpAddr], clock: &dyn Clock) -> Result<(String, String), String> {
    let all = names.iter().cloned().chain(ips.iter().map(IpAddr::to_string));
    let mut params = CertificateParams::new(all.collect::<Vec<_>>()).map_err(|e| e.to_string())?;
    let year = 1970 + (clock.wall().as_secs() / YEAR) as i32;
    params.not_before = date_time_ymd(year - 1, 1, 1);
    params.not_after = date_time_ymd(year + GOOD_YEARS, 1, 1);
    params.distinguished_name.push(DnType::CommonName, "skep console");
    let key = KeyPair::generate().map_err(|e| e.to_string())?;
    let certificate = params.self_signed(&key).map_err(|e| e.to_string())?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::SystemClock;

    #[test]
    fn what_is_made_here_can_be_shown_and_pairs_are_told_apart() {
        let make = || {
            let names = ["store.example".to_string(), "localhost".to_string()];
            let (c, k) = self_signed(&names, &["10.0.0.1".parse().unwrap()], &SystemClock::new()).unwrap();
            (c.into_bytes(), k.into_bytes())
        };
        let (a, b) = (make(), make());
        assert!(config(&a).is_ok());
        assert!(config(&(a.0.clone(), b.1)).is_err());
        assert!(config(&(a.0, b"no key".to_vec())).is_err());
        assert!(config(&(b"".to_vec(), a.1)).is_err());
    }
}
