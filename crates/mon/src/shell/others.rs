//! Asking the other monitors of the map whether they follow the cluster state: a session as a monitor, a PING, its answer.
//!
//! Bounds: [`ASKED_MAX`] monitors are asked, at the same time, each for [`ANSWER_MAX`]. The identity that a monitor gives us
//! is kept and used again: a monitor without the cluster state cannot get new ones to give.
//!
//! Not here: when to ask, and what follows from the answers (`lag`).

use crate::policies::lag::{Word, Words, word_of};
use auth::{CephxClient, ClientAuth, Entropy, NoneClient};
use cluster::ClusterState;
use io::Clock;
use messages::mon::{Body, MPing};
use msgr::ClientConfig;
use net::{ClientError, ClientStream};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::{AuthName, EntityAddr, EntityKind};

/// More monitors than that are not asked.
const ASKED_MAX: usize = 8;
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// One to be asked.
struct Other {
    name: String,
    addr: EntityAddr,
}

pub struct Others {
    /// Our name.
    name: String,
    /// False: everybody may everything.
    cephx: bool,
    line: Line,
    /// What each of them gave us at the last session.
    known: BTreeMap<String, CephxClient>,
}

/// What a session needs.
#[derive(Clone)]
struct Line {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    nonce: u32,
}

impl Others {
    pub fn new(
        name: String,
        cephx: bool,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        nonce: u32,
    ) -> Self {
        let line = Line {
            clock,
            entropy,
            nonce,
        };
        Self {
            name,
            cephx,
            line,
            known: BTreeMap::new(),
        }
    }

    fn of(&self, state: &ClusterState) -> Vec<Other> {
        let others = state.monmap.by_rank().filter(|i| i.name != self.name);
        let other = |i: &types::monmap::MonInfo| Other {
            name: i.name.clone(),
            addr: i.addrs.msgr2_or_first(),
        };
        others.map(other).take(ASKED_MAX).collect()
    }

    /// Asks all others that the map names. Inside a `LocalSet`.
    pub async fn ask(&mut self, state: &ClusterState) -> Words {
        let me = AuthName::new(EntityKind::Mon, "");
        let key = state.auth.get(&me).map(|e| e.key.clone());
        let mut tasks = Vec::new();
        for other in self.of(state) {
            let line = self.line.clone();
            let task = match (self.cephx, &key) {
                (false, _) => {
                    let (name, global_id) = (me.clone(), u64::from(line.nonce));
                    let auth = NoneClient { name, global_id };
                    io::task::spawn_local(async move { (line.ask(&other, auth).await.0, other.name, None) })
                }
                (true, Some(key)) => {
                    let fresh = || CephxClient::new(me.clone(), key.clone());
                    let auth = self.known.remove(&other.name).unwrap_or_else(fresh);
                    io::task::spawn_local(async move {
                        let (word, auth) = line.ask(&other, auth).await;
                        (word, other.name, auth)
                    })
                }
                // Nothing to prove with that we are a monitor.
                (true, None) => continue,
            };
            tasks.push(task);
        }
        let mut words = Words::new();
        for task in tasks {
            if let Ok((word, name, auth)) = task.await {
                self.known.extend(auth.map(|a| (name.clone(), a)));
                words.insert(name, word);
            }
        }
        words
    }
}

impl Line {
    /// One question. What is left of the credentials: none, if they were not taken.
    async fn ask<A: ClientAuth + Clone>(&self, other: &Other, auth: A) -> (Word, Option<A>) {
        match io::task::timeout(ANSWER_MAX, self.talk(other, auth.clone())).await {
            Ok(Ok((word, auth))) => (word, Some(auth)),
            Ok(Err(ClientError::Protocol(e))) => {
                tracing::debug!("mon.{} was asked how it is: {e}", other.name);
                (Word::Silent, None)
            }
            Ok(Err(_)) | Err(_) => (Word::Silent, Some(auth)),
        }
    }

    async fn talk<A: ClientAuth>(&self, other: &Other, auth: A) -> Result<(Word, A), ClientError> {
        let Some(sock) = other.addr.sock else {
            return Err(ClientError::Closed);
        };
        let config = ClientConfig {
            kind: EntityKind::Mon,
            ..ClientConfig::new(EntityKind::Mon, other.addr, self.nonce, self.entropy.clone())
        };
        let mut stream = ClientStream::connect(sock, config, auth, self.clock.clone()).await?;
        stream.send(MPing { text: None }.message(0)).await?;
        loop {
            let m = stream.recv().await?;
            if m.kind == MPing::KIND {
                let text = MPing::from_message(&m).ok().and_then(|p| p.text);
                let word = word_of(&text.unwrap_or_default());
                return Ok((word, stream.into_auth()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::lag::said;

    #[test]
    fn what_an_answer_means() {
        let answer = |ms: u64| {
            let (key, value) = said(Duration::from_millis(ms));
            serde_json::json!({"health": {}, key: value}).to_string()
        };
        assert_eq!(word_of(&answer(0)), Word::Follows);
        assert_eq!(word_of(&answer(3000)), Word::Follows);
        assert_eq!(word_of(&answer(3001)), Word::Behind);
        assert_eq!(word_of("{}"), Word::Behind);
        assert_eq!(word_of("no JSON"), Word::Behind);
    }
}
