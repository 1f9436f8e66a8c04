//! The object gateway of a node, as a role: where it was asked for.

use crate::role::{Plan, Role, Running};
use crate::settle::S3Options;
use crate::{AuthMode, Error, Settings, monitor};
use ::s3::{Gateway, KeystoneSettings, Masters, Settings as GatewaySettings, Swift};
use auth::{Context, CryptoKey};
use client::{Client, Conf};
use io::group::Group;
use io::socket::Listener;
use io::task;
use metastore::ClusterHandle;
use metrics::Registry;
use net::tls::Certificate;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use types::{AuthName, EntityAddr, EntityKind, Utime};

/// What the store may take for one operation; then the client is told to slow down.
const OPERATION_WITHIN: Duration = Duration::from_secs(60);
/// A port or a cluster that cannot be used yet is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct S3Role {
    name: String,
    options: S3Options,
    settings: Settings,
    cluster: ClusterHandle,
    platform: crate::platform::Platform,
    registry: Registry,
}

pub(crate) fn roles(plan: &Plan<'_>) -> Result<Vec<Box<dyn Role>>, Error> {
    let Some(options) = plan.options.s3.clone() else {
        return Ok(Vec::new());
    };
    let name = format!("s3.{}", plan.settings.mon_name());
    Ok(vec![Box::new(S3Role {
        registry: plan.registries.of(&name),
        name,
        options,
        settings: plan.settings.clone(),
        cluster: plan.cluster.clone(),
        platform: plan.platform.clone(),
    })])
}

fn user() -> AuthName {
    AuthName::new(EntityKind::Client, "s3")
}

impl S3Role {
    /// Its key, which it is given when it first needs one.
    async fn key(&self, name: &AuthName) -> Result<Option<CryptoKey>, String> {
        if self.settings.auth == AuthMode::None {
            return Ok(None);
        }
        let entropy = self.platform.entropy();
        let cx = Context {
            now: Utime::from_unix(self.platform.clock.wall()),
            entropy: &*entropy,
        };
        let new = cluster::new_entity(&cx, &cluster::S3_CAPS);
        let key = self.cluster.daemon_key(name, &new).await;
        key.map(Some).map_err(|e| e.to_string())
    }

    async fn conf(&self) -> Result<Conf, String> {
        let name = user();
        let key = self.key(&name).await?;
        let state = self.cluster.state();
        let mut mons: Vec<EntityAddr> = state.monmap.by_rank().map(|m| m.addrs.first()).collect();
        if mons.is_empty() {
            mons.push(monitor::addr(&self.settings));
        }
        let mut conf = Conf::new(name, mons, key);
        conf.op_timeout = Some(OPERATION_WITHIN);
        conf.mon_timeout = Some(OPERATION_WITHIN);
        Ok(conf)
    }

    async fn certificate(&self) -> Result<Option<Certificate>, String> {
        let Some((certificate, key)) = self.options.tls.clone() else {
            return Ok(None);
        };
        Certificate::open("s3", certificate, key).await.map(Some)
    }

    /// With the key that its client came with.
    async fn open(&self) -> Result<(Client, Gateway, Option<CryptoKey>), String> {
        let settings = GatewaySettings {
            gc_wait: self.options.gc_wait,
            split_at: self.options.split_at,
            day: self.options.day,
            domains: self.options.domains.clone(),
            sites: self.options.sites.clone(),
            usage_keep: self.options.usage_keep,
            plain_keys: self.options.plain_keys,
            masters: match &self.options.master_keys {
                None => Masters::default(),
                Some(file) => Masters::open(file).await?,
            },
            swift: self.options.swift.then(|| Swift {
                url: self.options.swift_url.clone(),
            }),
            endpoints: self.options.endpoints.clone(),
            log_every: self.options.log_every,
            keystone: match &self.options.keystone {
                None => None,
                Some(file) => Some(KeystoneSettings::open(file).await?),
            },
        };
        let conf = self.conf().await?;
        let key = conf.key.clone();
        let client = Client::connect(conf).await.map_err(|e| e.to_string())?;
        match Gateway::open(&client, &settings, &self.registry).await {
            Ok(gateway) => Ok((client, gateway, key)),
            Err(e) => {
                client.shutdown().await;
                Err(e.to_string())
            }
        }
    }

    /// None: it was told to stop. A port that somebody else has, or an address that is not there yet, is tried again: the
    /// gateway alone waits for it.
    async fn listen(&self, stop: &mut watch::Receiver<bool>) -> Option<Listener> {
        let listen = self.options.listen;
        let mut said = None;
        loop {
            match Listener::bind(listen) {
                Ok(listener) => {
                    if said.is_some() {
                        tracing::info!("S3 listens on {listen} now");
                    }
                    return Some(listener);
                }
                Err(e) => {
                    let why = e.to_string();
                    if said.as_ref() != Some(&why) {
                        tracing::warn!("S3 cannot listen on {listen}: {why}; it is tried again");
                    }
                    said = Some(why);
                }
            }
            tokio::select! {
                () = task::sleep(AGAIN_AFTER) => {}
                _ = stop.wait_for(|s| *s) => return None,
            }
        }
    }

    async fn run(self, ready: oneshot::Sender<()>, mut stop: watch::Receiver<bool>) -> Result<(), String> {
        // The node waits for neither port nor cluster: its monitor may be what the cluster's OSDs wait for.
        let _ = ready.send(());
        while self.serve(&mut stop).await? {
            tracing::info!("S3 begins anew: {} has another key", user());
        }
        Ok(())
    }

    /// Until it is told to stop: false; or until its key opens nothing new any more: true.
    async fn serve(&self, stop: &mut watch::Receiver<bool>) -> Result<bool, String> {
        // Clients that come from now on wait.
        let Some(listener) = self.listen(stop).await else {
            return Ok(false);
        };
        let mut said = String::new();
        let (certificate, (client, gateway, key)) = loop {
            let opened = async { Ok((self.certificate().await?, self.open().await?)) };
            let opened: Result<_, String> = tokio::select! {
                opened = opened => opened,
                _ = stop.wait_for(|s| *s) => return Ok(false),
            };
            match opened {
                Ok(opened) => break opened,
                Err(e) if e == said => {}
                Err(e) => {
                    tracing::warn!("S3 does not serve yet: {e}; it is tried again");
                    said = e;
                }
            }
            tokio::select! {
                () = task::sleep(AGAIN_AFTER) => {}
                _ = stop.wait_for(|s| *s) => return Ok(false),
            }
        };
        let refused = |e| format!("S3 cannot listen on {}: {e}", self.options.listen);
        let acceptor = listener.start().map_err(refused)?;
        let user = user();
        let until = async {
            tokio::select! {
                _ = stop.wait_for(|s| *s) => false,
                () = self.cluster.key_replaced(&user, key.as_ref()) => true,
            }
        };
        let anew = gateway.serve_until((acceptor, certificate), until).await;
        client.shutdown().await;
        Ok(anew)
    }
}

impl Role for S3Role {
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
