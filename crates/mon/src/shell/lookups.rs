//! Requests about an image that has to be looked up first, or that somebody beside the monitor carries out: they wait beside its loop, and are
//! decided or answered afterwards.
//!
//! Bound: [`WAITING_MAX`] of each kind wait. Who asked may be gone by then; its answer goes nowhere.

use crate::shell::requests::{Action, Request};
use cluster::rbd_support::{Found, Live, Wanted};
use cluster::volumes::{Asked, Done};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use types::Errno;

const WAITING_MAX: usize = 16;

/// Who works on images in this process.
#[derive(Debug, Clone)]
pub struct Images {
    pub live: watch::Receiver<Arc<Live>>,
    pub lookups: mpsc::Sender<(Wanted, oneshot::Sender<Found>)>,
}

/// Who carries out commands about subvolumes.
pub type Volumes = mpsc::Sender<(Asked, oneshot::Sender<Done>)>;

type Ready<P> = (P, u64, Box<Request>);

#[derive(Debug)]
pub struct Queue<P> {
    sender: mpsc::Sender<Ready<P>>,
    ready: mpsc::Receiver<Ready<P>>,
}

impl<P> Default for Queue<P> {
    fn default() -> Self {
        let (sender, ready) = mpsc::channel(WAITING_MAX);
        Self { sender, ready }
    }
}

impl<P: 'static> Queue<P> {
    /// The error is the request: too many wait already.
    pub fn begin(
        &self,
        images: &Images,
        wanted: Wanted,
        port: P,
        id: u64,
        mut request: Request,
    ) -> Result<(), Box<Request>> {
        let Ok(place) = self.sender.clone().try_reserve_owned() else {
            return Err(Box::new(request));
        };
        let lookups = images.lookups.clone();
        drop(io::task::spawn_local(async move {
            let (reply, found) = oneshot::channel();
            let asked = lookups.send((wanted, reply)).await.is_ok();
            let found = if asked { found.await.ok() } else { None };
            let ended = || Err((Errno::EIO, "nobody works on images here any more".to_string()));
            if let Action::Command { command, .. } = &mut request.action {
                command.found = Some(found.unwrap_or_else(ended));
            }
            place.send((port, id, Box::new(request)));
        }));
        Ok(())
    }

    /// The same for a command that is carried out there.
    pub fn begin_volume(
        &self,
        volumes: &Volumes,
        asked: Asked,
        port: P,
        id: u64,
        mut request: Request,
    ) -> Result<(), Box<Request>> {
        let Ok(place) = self.sender.clone().try_reserve_owned() else {
            return Err(Box::new(request));
        };
        let volumes = volumes.clone();
        drop(io::task::spawn_local(async move {
            let (reply, told) = oneshot::channel();
            let sent = volumes.send((asked, reply)).await.is_ok();
            let done = if sent { told.await.ok() } else { None };
            let ended = || Err((Errno::EIO, "nobody works on subvolumes here any more".to_string()));
            if let Action::Command { command, .. } = &mut request.action {
                command.done = Some(Box::new(done.unwrap_or_else(ended)));
            }
            place.send((port, id, Box::new(request)));
        }));
        Ok(())
    }

    /// The next request that can be decided.
    pub async fn next(&mut self) -> Ready<P> {
        match self.ready.recv().await {
            Some(ready) => ready,
            // We hold a sender.
            None => std::future::pending().await,
        }
    }
}
