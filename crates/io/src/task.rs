//! Threads with a single-threaded runtime each: how a role (a monitor, an OSD) owns its state without locks.
//!
//! A role is one thread; everything it spawns with `spawn_local` stays on it. Timers come from the same
//! runtime. Blocking work inside a role stalls that role alone.

use crate::group::Group;
use crate::thread;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::Poll;
use std::thread::JoinHandle;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Runtime;

pub use tokio::task::{JoinHandle as TaskHandle, spawn_local, yield_now};
pub use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};

/// A runtime of one thread; those that it starts for blocking work belong to the group, too.
pub(crate) fn runtime(group: Option<&Group>) -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    if let Some(group) = group.cloned() {
        // Not counted: a runtime that is dropped waits for them.
        builder.on_thread_start(move || group.adopt());
    }
    builder.enable_all().build()
}

/// Runs `role()` to its end on a new thread named `name`, inside a current-thread runtime.
pub fn spawn_role<R, F, T>(name: &str, role: R) -> io::Result<JoinHandle<T>>
where
    R: FnOnce() -> F + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let group = Group::current();
    let runtime = runtime(group.as_ref())?;
    thread::spawn_in(group, name, move || {
        let local = tokio::task::LocalSet::new();
        runtime.block_on(local.run_until(async move { role().await }))
    })
}

/// The same as the main thread of a group: when any thread or task of the group panics, `role()` is dropped where it
/// waits, with all that it spawned, and the answer is None.
pub fn spawn_group<R, F, T>(group: &Group, name: &str, role: R) -> io::Result<Main<T>>
where
    R: FnOnce() -> F + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let runtime = runtime(Some(group))?;
    let fallen = group.clone();
    let thread = thread::spawn_in(Some(group.clone()), name, move || {
        let local = tokio::task::LocalSet::new();
        runtime.block_on(local.run_until(until_panic(fallen, role)))
    })?;
    Ok(Main(Place::Own(thread)))
}

/// `role()`, which is dropped where it waits when any thread or task of the group panics.
pub(crate) async fn until_panic<R, F, T>(group: Group, role: R) -> Option<T>
where
    R: FnOnce() -> F,
    F: Future<Output = T>,
{
    tokio::select! {
        // First, so that nothing more is done after a panic than what was under way.
        biased;
        _ = group.panicked() => None,
        done = async { role().await } => Some(done),
    }
}

/// The main future of a group.
#[derive(Debug)]
pub struct Main<T>(pub(crate) Place<T>);

/// What runs it.
#[derive(Debug)]
pub(crate) enum Place<T> {
    Own(JoinHandle<Option<T>>),
    Shared(tokio::sync::oneshot::Receiver<T>),
}

impl<T> Main<T> {
    /// What it ended with, once the group has ended; None where a panic ended it. Before that this may block, or say None.
    pub fn join(self) -> Option<T> {
        match self.0 {
            Place::Own(thread) => thread.join().ok().flatten(),
            Place::Shared(mut done) => done.try_recv().ok(),
        }
    }
}

/// Does work that blocks on a thread of its own, of the caller's group, while the caller waits and the others on its thread go on. In a
/// simulation: at once. If the caller is dropped the thread ends by itself.
pub async fn aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    if crate::socket::is_simulated() {
        return Ok(work());
    }
    let (done, told) = tokio::sync::oneshot::channel();
    thread::spawn(name, move || drop(done.send(work())))?;
    // A panic is known already to who looks after it.
    told.await
        .map_err(|_| io::Error::other(format!("thread {name} ended without an answer")))
}

/// A part of a role that goes on while the role itself works: on a thread with a runtime of its own. In a simulation, which has
/// one thread, it is a task of the same process.
#[derive(Debug)]
pub struct Beside(Option<JoinHandle<()>>);

/// Runs `part()` beside the calling role, inside a `LocalSet`. How it is told to end is theirs to agree on.
pub fn spawn_beside<R, F>(name: &str, part: R) -> io::Result<Beside>
where
    R: FnOnce() -> F + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    if crate::socket::is_simulated() {
        drop(spawn_local(async move { part().await }));
        return Ok(Beside(None));
    }
    spawn_role(name, part).map(|thread| Beside(Some(thread)))
}

impl Beside {
    /// Waits for its end; call it when it was told to end, and will at once.
    pub fn join(self) {
        if let Some(thread) = self.0 {
            // It panicked: whoever looks after it knows already.
            let _ = thread.join();
        }
    }
}

/// Runs `main()` on the calling thread the same way.
pub fn block_on<F: Future>(main: F) -> io::Result<F::Output> {
    let runtime = runtime(Group::current().as_ref())?;
    let local = tokio::task::LocalSet::new();
    Ok(runtime.block_on(local.run_until(main)))
}

/// A thread with a runtime for tasks of all other threads: for a client that many roles share.
///
/// It ends when this is dropped, and with it the tasks, wherever they are.
#[derive(Debug)]
pub struct Background {
    handle: tokio::runtime::Handle,
    /// Dropped with this, which ends the thread.
    _alive: tokio::sync::oneshot::Sender<()>,
}

impl Background {
    pub fn start(name: &str) -> io::Result<Self> {
        let group = Group::current();
        let runtime = runtime(group.as_ref())?;
        let handle = runtime.handle().clone();
        let (alive, ended) = tokio::sync::oneshot::channel::<()>();
        thread::spawn_in(group, name, move || {
            runtime.block_on(async { drop(ended.await) });
        })?;
        Ok(Self {
            handle,
            _alive: alive,
        })
    }

    /// Runs `task` on the thread; its answer can be awaited anywhere, or not at all.
    pub fn spawn<F>(&self, task: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(task)
    }
}

/// What all of `work` answers, in its order, `at_once` at a time.
pub async fn several<F: Future>(at_once: usize, work: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut work = work.into_iter().enumerate();
    let (mut now, mut done) = (Vec::new(), Vec::new());
    poll_fn(|cx| {
        loop {
            let room = at_once - now.len();
            now.extend(work.by_ref().take(room).map(|(n, f)| (n, Box::pin(f))));
            let under_way = now.len();
            now.retain_mut(|(n, f): &mut (usize, Pin<Box<F>>)| match f.as_mut().poll(cx) {
                Poll::Ready(said) => {
                    done.push((*n, said));
                    false
                }
                Poll::Pending => true,
            });
            match () {
                () if under_way == 0 => return Poll::Ready(()),
                () if now.len() == under_way => return Poll::Pending,
                () => {}
            }
        }
    })
    .await;
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, said)| said).collect()
}

/// Completes when the process is asked to end (SIGTERM, SIGINT); says which.
pub async fn termination() -> io::Result<&'static str> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = term.recv() => Ok("SIGTERM"),
        _ = int.recv() => Ok("SIGINT"),
    }
}

/// Waits for a descriptor that somebody else turns readable, without a thread.
#[derive(Debug)]
pub struct Readable(AsyncFd<OwnedFd>);

impl Readable {
    /// Of a duplicate of `fd`, which stays its owner's. Only inside a runtime of this module.
    #[allow(unsafe_code)] // a descriptor is registered; see below why it stays good
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let own = fd.try_clone_to_owned()?;
        // SAFETY: the duplicate is ours alone; it is the same open descriptor until the `AsyncFd` that owns it drops it.
        let registered = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) };
        Ok(Self(registered?))
    }

    /// Completes when it has turned readable since the last time: the caller has to take all that is there, and
    /// may find nothing. Nothing is lost if it is dropped before it completes.
    pub async fn turned(&mut self) -> io::Result<()> {
        self.0.readable_mut().await?.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn readable_tells_of_every_turn_once() {
        block_on(async {
            let (mut here, mut there) = UnixStream::pair().unwrap();
            let mut readable = Readable::new(here.as_fd()).unwrap();
            for _ in 0..3 {
                let early = timeout(Duration::from_millis(1), readable.turned()).await;
                assert!(early.is_err(), "nothing has come");
                there.write_all(b"x").unwrap();
                readable.turned().await.unwrap();
                here.read_exact(&mut [0]).unwrap();
            }
        })
        .unwrap();
    }

    #[test]
    fn several_at_a_time_and_no_more() {
        let role = spawn_role("test", || async {
            let (now, most) = (Cell::new(0), Cell::new(0));
            let (now, most) = (&now, &most);
            let work = (0..20_u32).map(|n| async move {
                now.set(now.get() + 1);
                most.set(most.get().max(now.get()));
                for _ in 0..(20 - n) % 7 {
                    yield_now().await;
                }
                now.set(now.get() - 1);
                n
            });
            assert_eq!(several(4, work).await, (0..20).collect::<Vec<_>>());
            assert_eq!(most.get(), 4);
            assert!(several(4, Vec::<std::future::Ready<()>>::new()).await.is_empty());
        });
        role.unwrap().join().unwrap();
    }
}
