//! The console of a node, as a role: where it was asked for.

use crate::role::{Plan, Role, Running};
use crate::settle::ConsoleOptions;
use crate::{AuthMode, DataDir, Error, monitor};
use io::files;
use io::group::Group;
use io::socket::Listener;
use io::task;
use net::tls::Certificate;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use webconsole::{Cluster, Settings};

/// A port or a certificate that cannot be used yet is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct ConsoleRole {
    name: String,
    settings: Settings,
    /// Where a certificate is made if there is none; None: the files are somebody else's.
    made_for: Option<String>,
}

pub(crate) fn roles(plan: &Plan<'_>) -> Result<Vec<Box<dyn Role>>, Error> {
    let Some(options) = plan.options.console.clone() else {
        return Ok(Vec::new());
    };
    if plan.settings.auth == AuthMode::None {
        return Err(Error::Usage(
            "the console lets in whoever has a key, and with --auth none there are none".into(),
        ));
    }
    let (tls, made_for) = tls(plan.dir, &options, &plan.platform.hostname);
    Ok(vec![Box::new(ConsoleRole {
        name: format!("console.{}", plan.settings.mon_name()),
        made_for,
        settings: Settings {
            listen: options.listen,
            hosts: options.hosts,
            tls,
            cluster: Cluster {
                handle: plan.cluster.clone(),
                mon: monitor::addr(plan.settings),
            },
            buckets: buckets(),
            clock: plan.platform.clock.clone(),
            random: plan.platform.random.clone(),
        },
    })])
}

#[cfg(feature = "s3")]
fn buckets() -> Option<Arc<dyn webconsole::Buckets>> {
    crate::buckets::known()
}

#[cfg(not(feature = "s3"))]
fn buckets() -> Option<Arc<dyn webconsole::Buckets>> {
    None
}

/// The files of the certificate, and for which host one is made if they are not there. On loopback there is none, unless files were
/// named.
fn tls(dir: &DataDir, options: &ConsoleOptions, host: &str) -> (Option<(PathBuf, PathBuf)>, Option<String>) {
    match &options.certificate {
        Some(named) => (Some(named.clone()), None),
        None if options.listen.ip().is_loopback() => (None, None),
        None => {
            let at = |name: &str| dir.root().join(name);
            (
                Some((at("console.crt"), at("console.key"))),
                Some(host.to_string()),
            )
        }
    }
}

impl ConsoleRole {
    /// Makes the pair where it is not there. The key comes first, and is readable by us alone.
    fn make_certificate(&self, host: &str, (certificate, key): &(PathBuf, PathBuf)) -> Result<(), String> {
        let there = |path: &PathBuf| {
            files::read(path)
                .map(|f| f.is_some())
                .map_err(|e| format!("{}: {e}", path.display()))
        };
        if there(certificate)? && there(key)? {
            return Ok(());
        }
        let mut ips = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        if !self.settings.listen.ip().is_unspecified() {
            ips.push(self.settings.listen.ip());
        }
        let names = [
            vec![host.to_string(), "localhost".into()],
            self.settings.hosts.clone(),
        ]
        .concat();
        let (crt, secret) = webconsole::self_signed(&names, &ips, &*self.settings.clock)?;
        for (path, text) in [(key, secret), (certificate, crt)] {
            files::replace(path, text, files::PRIVATE_FILE)
                .map_err(|e| format!("{}: {e}", path.display()))?;
        }
        tracing::info!("console: a certificate was made: {}", certificate.display());
        Ok(())
    }

    async fn certificate(&self) -> Result<Option<Certificate>, String> {
        let Some(files) = &self.settings.tls else {
            return Ok(None);
        };
        if let Some(host) = self.made_for.clone() {
            let (role, files) = (self.clone(), files.clone());
            let made = task::aside("certificate", move || role.make_certificate(&host, &files)).await;
            made.map_err(|e| e.to_string()).flatten()?;
        }
        Certificate::open("console", files.0.clone(), files.1.clone())
            .await
            .map(Some)
    }

    async fn open(&self) -> Result<(Listener, Option<Certificate>), String> {
        let certificate = self.certificate().await?;
        let listen = self.settings.listen;
        let listener = Listener::bind(listen).map_err(|e| format!("{listen} cannot be listened on: {e}"))?;
        Ok((listener, certificate))
    }

    async fn run(self, ready: oneshot::Sender<()>, mut stop: watch::Receiver<bool>) -> Result<(), String> {
        // Nothing of the node waits for it.
        let _ = ready.send(());
        let mut said = String::new();
        let (listener, certificate) = loop {
            match self.open().await {
                Ok(opened) => break opened,
                Err(e) if e == said => {}
                Err(e) => {
                    tracing::warn!("no console yet: {e}; it is tried again");
                    said = e;
                }
            }
            tokio::select! {
                () = task::sleep(AGAIN_AFTER) => {}
                _ = stop.wait_for(|s| *s) => return Ok(()),
            }
        };
        let acceptor = listener.start().map_err(|e| e.to_string())?;
        tracing::info!("the console is at {}", self.settings.listen);
        webconsole::serve(self.settings, acceptor, certificate, stop).await;
        Ok(())
    }
}

impl Role for ConsoleRole {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(
        &self,
        group: &Group,
        ready: oneshot::Sender<()>,
        stop: watch::Receiver<bool>,
    ) -> std::io::Result<Running> {
        let role = self.clone();
        task::spawn_group(
            group,
            &self.name,
            move || async move { role.run(ready, stop).await },
        )
    }
}
