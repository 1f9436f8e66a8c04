//! Connections: accepted, counted, and their bytes as hyper wants them, with TLS or without.
//!
//! Bounds: [`CONNECTIONS_MAX`] connections, [`PER_ADDRESS`] of one address (a /64 of version 6 is one); a handshake as [`net::tls`] bounds it, a head of
//! [`HEAD_BYTES`] within [`HEAD_WITHIN`]. A client that takes nothing for [`net::http::STALLED`] is cut off.

use crate::web::{self, Answer};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use io::socket::{Acceptor, Stream};
use io::task;
use net::guesses;
use net::http::{Timer, Wire};
use net::tls::Certificate;
use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

const CONNECTIONS_MAX: usize = 128;
const PER_ADDRESS: usize = 48;
const HEAD_WITHIN: Duration = Duration::from_secs(20);
const HEAD_BYTES: usize = 16 << 10;
/// What requests under way have to end when the console stops.
const STOP_WITHIN: Duration = Duration::from_secs(3);
/// After an error of accepting, such as that of too many open files.
const PAUSE: Duration = Duration::from_secs(1);

/// Connections of each address.
type Places = Rc<RefCell<HashMap<IpAddr, usize>>>;

/// A connection's place, given back when it ends.
struct Place {
    places: Places,
    ip: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// None: the address has as many as it may have.
    fn take(places: &Places, ip: IpAddr, permit: OwnedSemaphorePermit) -> Option<Self> {
        let ip = guesses::source(ip);
        let mut all = places.borrow_mut();
        let count = all.entry(ip).or_default();
        if *count >= PER_ADDRESS {
            return None;
        }
        *count += 1;
        Some(Self {
            places: places.clone(),
            ip,
            _permit: permit,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.places.borrow_mut();
        if let Some(count) = all.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.ip);
            }
        }
    }
}

/// Work for a browser, in a task of its own so that a panic is an answer; it ends when the browser goes.
struct Underway<T>(task::TaskHandle<T>);

impl<T> Drop for Underway<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves until `stop` turns true.
pub async fn serve<F, A>(
    acceptor: Acceptor,
    certificate: Option<Certificate>,
    answer: F,
    mut stop: watch::Receiver<bool>,
) where
    F: Fn(Request<Incoming>, IpAddr) -> A + Clone + 'static,
    A: Future<Output = Answer> + 'static,
{
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let places = Places::default();
    let stopped = stop.clone();
    loop {
        let accepted = async {
            let permit = room.clone().acquire_owned().await;
            (permit, acceptor.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            biased;
            _ = stop.wait_for(|s| *s) => break,
            both = accepted => both,
        };
        match (permit, accepted) {
            (Ok(permit), Ok((stream, peer))) => {
                // A socket of version 6 sees those of version 4 as ::ffff:a.b.c.d.
                let ip = peer.ip().to_canonical();
                let Some(place) = Place::take(&places, ip, permit) else {
                    continue;
                };
                let (certificate, answer, stopped) = (certificate.clone(), answer.clone(), stopped.clone());
                task::spawn_local(async move {
                    connection(stream, certificate, move |r| answer(r, ip), stopped).await;
                    drop(place);
                });
            }
            (_, Err(e)) => {
                tracing::warn!("console: {e}");
                task::sleep(PAUSE).await;
            }
            (Err(_), _) => return,
        }
    }
    drop(acceptor);
    let ended = room.acquire_many(CONNECTIONS_MAX as u32);
    if task::timeout(STOP_WITHIN, ended).await.is_err() {
        tracing::info!("console: requests under way are cut off");
    }
}

async fn connection<F, A>(
    stream: Stream,
    certificate: Option<Certificate>,
    answer: F,
    stop: watch::Receiver<bool>,
) where
    F: Fn(Request<Incoming>) -> A,
    A: Future<Output = Answer> + 'static,
{
    let wire = Wire::new(stream);
    let done = match certificate {
        None => http(wire, answer, stop).await,
        Some(certificate) => match certificate.accept(wire).await {
            Ok(wire) => http(wire, answer, stop).await,
            Err(e) => return tracing::debug!("console: no TLS: {e}"),
        },
    };
    if let Err(e) = done {
        tracing::debug!("console: {e}");
    }
}

async fn http<S, F, A>(wire: S, answer: F, mut stop: watch::Receiver<bool>) -> hyper::Result<()>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin,
    F: Fn(Request<Incoming>) -> A,
    A: Future<Output = Answer> + 'static,
{
    let service = service_fn(move |request| {
        let mut work = Underway(task::spawn_local(answer(request)));
        async move { Ok::<_, Infallible>((&mut work.0).await.unwrap_or_else(|_| web::broken())) }
    });
    let served = http1::Builder::new()
        .timer(Timer)
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(wire, service);
    let mut served = pin!(served);
    tokio::select! {
        done = &mut served => done,
        _ = stop.wait_for(|s| *s) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_by_address_and_network() {
        let (places, room) = (Places::default(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        let take = |ip: String| {
            let permit = room.clone().try_acquire_owned().unwrap();
            Place::take(&places, ip.parse().unwrap(), permit)
        };
        let held: Vec<_> = (0..PER_ADDRESS)
            .map(|n| take(format!("2001:db8::{n:x}")).unwrap())
            .collect();
        assert!(take("2001:db8::ffff".into()).is_none(), "the same /64");
        assert!(take("2001:db8:0:1::1".into()).is_some());
        assert!(take("10.0.0.1".into()).is_some());
        drop(held);
        assert!(take("2001:db8::ffff".into()).is_some());
        assert!(places.borrow().is_empty());
    }

    #[test]
    fn work_ends_with_the_browser() {
        let role = io::task::spawn_role("test", || async {
            let left = Rc::new(());
            let kept = left.clone();
            let work = Underway(task::spawn_local(async move {
                std::future::pending::<()>().await;
                drop(kept);
            }));
            task::yield_now().await;
            assert_eq!(Rc::strong_count(&left), 2);
            drop(work);
            task::yield_now().await;
            assert_eq!(Rc::strong_count(&left), 1);
        });
        role.unwrap().join().unwrap();
    }
}
