//! The object gateway of a node, as a role: where it was asked for.

use crate::role::{Plan, Role, Running};
use crate::settle::S3Options;
use crate::{AuthMode, Error, GatewayOptions, Settings, gateway, monitor};
use ::s3::{Gateway, KeystoneSettings, Masters, Settings as GatewaySettings};
use auth::{Context, CryptoKey};
use client::{Client, Conf};
use cluster::ClusterState;
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
/// Who changes one option of the cluster often changes another.
const MORE_WITHIN: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct S3Role {
    name: String,
    options: S3Options,
    settings: Settings,
    cluster: ClusterHandle,
    platform: crate::platform::Platform,
    registry: Registry,
}

/// What serves, with what it was made of: the key that its client came with, and what the cluster had set.
struct Opened {
    client: Client,
    gateway: Gateway,
    key: Option<CryptoKey>,
    set: GatewayOptions,
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

    /// What the cluster has set for it, and what is wrong with that.
    fn set(&self, state: &ClusterState) -> (GatewayOptions, Vec<String>) {
        GatewayOptions::read(&state.config, &user(), &self.platform.hostname)
    }

    /// Completes when the cluster has set something else than `known`.
    async fn set_otherwise(&self, known: &GatewayOptions) {
        let mut states = self.cluster.subscribe_state();
        let changed = states.wait_for(|s| self.set(s).0 != *known).await.is_ok();
        if !changed {
            // The state has ended, and with it the process.
            std::future::pending::<()>().await;
        }
        task::sleep(MORE_WITHIN).await;
    }

    async fn settings(&self) -> Result<GatewaySettings, String> {
        Ok(GatewaySettings {
            split_at: self.options.split_at,
            day: self.options.day,
            masters: match &self.options.master_keys {
                None => Masters::default(),
                Some(file) => Masters::open(file).await?,
            },
            endpoints: self.options.endpoints.clone(),
            log_every: self.options.log_every,
            keystone: match &self.options.keystone {
                None => None,
                Some(file) => Some(KeystoneSettings::open(file).await?),
            },
            ..GatewaySettings::default()
        })
    }

    async fn open(&self) -> Result<Opened, String> {
        let mut settings = self.settings().await?;
        let (set, mut wrong) = self.set(&self.cluster.state());
        let options = set.clone().under(&self.options.said);
        wrong.extend(gateway::apply(&options, self.options.usage_days, &mut settings));
        let conf = self.conf().await?;
        let key = conf.key.clone();
        let client = Client::connect(conf).await.map_err(|e| e.to_string())?;
        match Gateway::open(&client, &settings, &self.registry).await {
            Ok(gateway) => {
                wrong.iter().for_each(|w| tracing::warn!("S3: {w}"));
                Ok(Opened {
                    client,
                    gateway,
                    key,
                    set,
                })
            }
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
        while let Some(why) = self.serve(&mut stop).await? {
            tracing::info!("S3 begins anew: {why}");
        }
        Ok(())
    }

    /// Until it is told to stop: None; or why it is to begin anew.
    async fn serve(&self, stop: &mut watch::Receiver<bool>) -> Result<Option<String>, String> {
        // Clients that come from now on wait.
        let Some(listener) = self.listen(stop).await else {
            return Ok(None);
        };
        let mut said = String::new();
        let (certificate, opened) = loop {
            let opened = async { Ok((self.certificate().await?, self.open().await?)) };
            let opened: Result<_, String> = tokio::select! {
                opened = opened => opened,
                _ = stop.wait_for(|s| *s) => return Ok(None),
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
                _ = stop.wait_for(|s| *s) => return Ok(None),
            }
        };
        let refused = |e| format!("S3 cannot listen on {}: {e}", self.options.listen);
        let acceptor = listener.start().map_err(refused)?;
        let Opened {
            client,
            gateway,
            key,
            set,
        } = opened;
        let until = async {
            let user = user();
            tokio::select! {
                _ = stop.wait_for(|s| *s) => None,
                () = self.cluster.key_replaced(&user, key.as_ref()) => Some(format!("{user} has another key")),
                () = self.set_otherwise(&set) => Some("options of the cluster have changed".into()),
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
