//! Where etcd is, and who we are to it.

use etcd_client::{Certificate, Identity, TlsOptions};
use metastore::kv::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// The password as it is now, asked for at every login: it may be changed while this runs. Or why there is none.
pub type Password = Arc<dyn Fn() -> std::result::Result<String, String> + Send + Sync>;

#[derive(Clone)]
pub struct Options {
    /// `http://host:2379` or `https://...`, at least one.
    pub endpoints: Vec<String>,
    pub tls: Option<Tls>,
    pub user: Option<(String, Password)>,
    /// First part of all keys, for several clusters on one etcd.
    pub prefix: String,
    /// How long a watcher may be away without having to read everything again.
    pub keep_changes: Duration,
}

impl Options {
    pub const PREFIX: &str = "skep";
    pub const KEEP_CHANGES: Duration = Duration::from_secs(600);

    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            tls: None,
            user: None,
            prefix: Self::PREFIX.into(),
            keep_changes: Self::KEEP_CHANGES,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let bad = |why: String| Err(Error::Open(why));
        if self.endpoints.is_empty() {
            return bad("no endpoint of etcd is named".into());
        }
        for e in &self.endpoints {
            let secure = e.starts_with("https://");
            if !secure && !e.starts_with("http://") {
                return bad(format!(
                    "endpoint {e:?} of etcd: write http://HOST:PORT or https://HOST:PORT"
                ));
            }
            if secure != self.tls.is_some() {
                return bad(match secure {
                    true => format!("endpoint {e} of etcd needs the certificate of its authority"),
                    false => {
                        format!("endpoint {e} of etcd is not encrypted: https is needed for certificates")
                    }
                });
            }
        }
        match self.prefix.is_empty() || self.prefix.contains('/') || !self.prefix.is_ascii() {
            true => bad(format!(
                "{:?} cannot be the first part of etcd's keys",
                self.prefix
            )),
            false => Ok(()),
        }
    }
}

/// Certificates and key in PEM.
#[derive(Clone)]
pub struct Tls {
    /// Of the authority that signed etcd's certificate.
    pub authority: Vec<u8>,
    /// Our certificate and its key, where etcd asks for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    pub(crate) fn client(&self) -> TlsOptions {
        let o = TlsOptions::new().ca_certificate(Certificate::from_pem(&self.authority));
        match &self.identity {
            Some((cert, key)) => o.identity(Identity::from_pem(cert, key)),
            None => o,
        }
    }
}
