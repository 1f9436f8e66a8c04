//! OSDs of one process asking each other for whole objects (the source of COPY_FROM).
//!
//! Bounds: [`QUEUE`] requests wait per OSD; an answer has [`ANSWER_TIMEOUT`]. Not here: OSDs of other hosts (`fetches`).

use net::Lanes;
use pg::ObjectCopy;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use types::{Errno, HObject, OsdId};

/// Requests that wait for one OSD.
const QUEUE: usize = 64;
/// After this the asker gives up.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// What an object looks like, or why it cannot be had.
pub type Copied = Result<Box<ObjectCopy>, Errno>;

#[derive(Debug)]
pub struct FetchRequest {
    pub object: HObject,
    pub answer: oneshot::Sender<Copied>,
}

/// Who can be asked; one per process, shared by its OSDs.
#[derive(Debug, Clone, Default)]
pub struct Peers {
    asked: Arc<Mutex<HashMap<OsdId, mpsc::Sender<FetchRequest>>>>,
    /// Connections between them.
    pub lanes: Lanes,
}

impl Peers {
    /// Of OSDs that share lanes and nothing else.
    pub fn over(lanes: Lanes) -> Self {
        Self {
            lanes,
            ..Self::default()
        }
    }

    /// Makes this OSD known; requests to it arrive at the receiver. A restarted OSD replaces its old self.
    pub fn register(&self, id: OsdId) -> mpsc::Receiver<FetchRequest> {
        let (tx, rx) = mpsc::channel(QUEUE);
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, tx);
        rx
    }

    /// True if it runs in this process.
    pub fn has(&self, osd: OsdId) -> bool {
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(&osd)
    }

    /// Asks `osd` for `object`. EAGAIN where it is not here, too busy, or stopping: the client asks again.
    pub async fn fetch(&self, osd: OsdId, object: HObject) -> Copied {
        let peer = self
            .asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&osd)
            .cloned();
        let Some(peer) = peer else {
            return Err(Errno::EAGAIN);
        };
        let (answer, wait) = oneshot::channel();
        peer.try_send(FetchRequest { object, answer })
            .map_err(|_| Errno::EAGAIN)?;
        match io::task::timeout(ANSWER_TIMEOUT, wait).await {
            Ok(Ok(copied)) => copied,
            _ => Err(Errno::EAGAIN),
        }
    }
}
