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
/// What a gateway serves at least before it begins anew for that, however often something is changed.
const SERVES_AT_LEAST: Duration = Duration::from_secs(30);
/// All gateways hear of a change: they begin anew at moments that are spread over so much.
const SPREAD_MS: u64 = 20_000;

#[derive(Clone)]
struct S3Role {
    name: String,
    options: S3Options,
    settings: Settings,
    cluster: ClusterHandle,
    platform: crate::platform::Platform,
    registry: Registry,
}

/// What is read of files, once: who begins anew does so with what it has, whatever has become of them. The certificate follows its
/// file by itself.
#[derive(Clone)]
struct Files {
    certificate: Option<Certificate>,
    masters: Masters,
    keystone: Option<KeystoneSettings>,
}

/// What serves, with what it was made of: the key that its client came with, what the cluster had set, and what was wrong with that.
struct Opened {
    client: Client,
    gateway: Gateway,
    certificate: Option<Certificate>,
    key: Option<CryptoKey>,
    options: GatewayOptions,
    wrong: Vec<String>,
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

fn warn(wrong: &[String]) {
    wrong.iter().for_each(|w| tracing::warn!("S3: {w}"));
}

/// How long a gateway that has `served` so long goes on when it hears of a change. `drawn`: any number, another for each gateway.
fn anew_after(served: Duration, drawn: u32) -> Duration {
    let spread = Duration::from_millis(u64::from(drawn) % SPREAD_MS);
    SERVES_AT_LEAST.saturating_sub(served).max(MORE_WITHIN) + spread
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

    /// What is meant of what the cluster has set for it, and what is wrong with that.
    fn meant(&self, state: &ClusterState) -> (GatewayOptions, Vec<String>) {
        let (set, mut wrong) = GatewayOptions::read(&state.config, &user(), &self.platform.hostname);
        let (options, more) = gateway::meant(set, &self.options.said);
        wrong.extend(more);
        (options, wrong)
    }

    /// Completes some time after the cluster has set what comes to something else than `known`, unless it is taken back meanwhile. What
    /// is wrong with it is told when it is something else than was `told`, and changes nothing.
    async fn set_otherwise(&self, known: &GatewayOptions, mut told: Vec<String>) {
        let began = self.platform.clock.monotonic();
        let mut states = self.cluster.subscribe_state();
        loop {
            let heard = states
                .wait_for(|s| {
                    let (options, wrong) = self.meant(s);
                    options != *known || wrong != told
                })
                .await
                .is_ok();
            if !heard {
                // The state has ended, and with it the process.
                std::future::pending::<()>().await;
            }
            let (options, wrong) = self.meant(&states.borrow());
            if wrong != told {
                warn(&wrong);
                told = wrong;
            }
            if options == *known {
                continue;
            }
            let served = self.platform.clock.monotonic().saturating_sub(began);
            task::sleep(anew_after(served, self.platform.random.u32())).await;
            if self.meant(&states.borrow()).0 != *known {
                return;
            }
        }
    }

    async fn files(&self) -> Result<Files, String> {
        Ok(Files {
            certificate: match self.options.tls.clone() {
                None => None,
                Some((certificate, key)) => Some(Certificate::open("s3", certificate, key).await?),
            },
            masters: match &self.options.master_keys {
                None => Masters::default(),
                Some(file) => Masters::open(file).await?,
            },
            keystone: match &self.options.keystone {
                None => None,
                Some(file) => Some(KeystoneSettings::open(file).await?),
            },
        })
    }

    /// `read`: what was read of files; it is read where it was not.
    async fn open(&self, read: &mut Option<Files>) -> Result<Opened, String> {
        let files = match read {
            Some(files) => files.clone(),
            None => read.insert(self.files().await?).clone(),
        };
        let mut settings = GatewaySettings {
            split_at: self.options.split_at,
            day: self.options.day,
            masters: files.masters,
            endpoints: self.options.endpoints.clone(),
            log_every: self.options.log_every,
            keystone: files.keystone,
            ..GatewaySettings::default()
        };
        let (options, wrong) = self.meant(&self.cluster.state());
        gateway::apply(options.clone(), self.options.usage_days, &mut settings);
        let conf = self.conf().await?;
        let key = conf.key.clone();
        let client = Client::connect(conf).await.map_err(|e| e.to_string())?;
        match Gateway::open(&client, &settings, &self.registry).await {
            Ok(gateway) => {
                warn(&wrong);
                Ok(Opened {
                    client,
                    gateway,
                    certificate: files.certificate,
                    key,
                    options,
                    wrong,
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
        let mut files = None;
        while let Some(why) = self.serve(&mut files, &mut stop).await? {
            tracing::info!("S3 begins anew: {why}");
        }
        Ok(())
    }

    /// Until it is told to stop: None; or why it is to begin anew.
    async fn serve(
        &self,
        files: &mut Option<Files>,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Option<String>, String> {
        // Clients that come from now on wait.
        let Some(listener) = self.listen(stop).await else {
            return Ok(None);
        };
        let mut said = String::new();
        let opened = loop {
            let opened = tokio::select! {
                opened = self.open(files) => opened,
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
            certificate,
            key,
            options,
            wrong,
        } = opened;
        let until = async {
            let user = user();
            tokio::select! {
                _ = stop.wait_for(|s| *s) => None,
                () = self.cluster.key_replaced(&user, key.as_ref()) => Some(format!("{user} has another key")),
                () = self.set_otherwise(&options, wrong) => Some("options of the cluster have changed".into()),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A change took all gateways of a cluster away at once, and each further one again.
    #[test]
    fn gateways_begin_anew_one_after_the_other_and_not_too_often() {
        let s = Duration::from_secs;
        assert_eq!(anew_after(s(0), 0), s(30));
        assert_eq!(anew_after(s(29), 0), s(2));
        assert_eq!(anew_after(s(86_400), 0), s(2));
        assert_eq!(anew_after(s(20), 5_000), s(15));
        let drawn = [1, 7_000, 19_999, 20_000, u32::MAX];
        let after = drawn.map(|d| anew_after(s(60), d).as_millis());
        assert_eq!(
            after,
            [2_001, 9_000, 21_999, 2_000, 2_000 + 4_294_967_295 % 20_000]
        );
    }
}
