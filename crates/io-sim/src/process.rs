//! A process on a simulated host: all its tasks in one `LocalSet`.
//!
//! Invariants: what a killed process had is dropped before [`Process::kill`] returns, and nothing of it runs again. While
//! it is paused none of its tasks is polled; its timers fire, and are seen afterwards.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::task::LocalSet;

thread_local! {
    static CURRENT: Cell<Option<IpAddr>> = const { Cell::new(None) };
}

/// The host whose process runs now.
pub fn current_host() -> Option<IpAddr> {
    CURRENT.with(Cell::get)
}

fn on_host<T>(host: IpAddr, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.with(|c| c.replace(Some(host)));
    let out = work();
    CURRENT.with(|c| c.set(before));
    out
}

#[derive(Debug)]
struct Shared {
    host: IpAddr,
    tasks: RefCell<Option<LocalSet>>,
    paused: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// A handle; clones are the same process.
#[derive(Debug, Clone)]
pub struct Process(Rc<Shared>);

impl Process {
    /// Starts `main` on `host`. It ends when `main` and all that it spawned has ended. In a `LocalSet`.
    pub fn start<F: Future<Output = ()> + 'static>(host: IpAddr, main: F) -> Self {
        let tasks = LocalSet::new();
        tasks.spawn_local(main);
        let process = Self(Rc::new(Shared {
            host,
            tasks: RefCell::new(Some(tasks)),
            paused: Cell::new(false),
            waker: RefCell::new(None),
        }));
        tokio::task::spawn_local(Running(process.clone()));
        process
    }

    fn wake(&self) {
        if let Some(w) = self.0.waker.borrow_mut().take() {
            w.wake();
        }
    }

    pub fn pause(&self) {
        self.0.paused.set(true);
    }

    pub fn resume(&self) {
        self.0.paused.set(false);
        self.wake();
    }

    /// Drops all its tasks, as SIGKILL does. Not from within the process.
    pub fn kill(&self) {
        let tasks = self.0.tasks.borrow_mut().take();
        on_host(self.0.host, || drop(tasks));
        self.wake();
    }

    pub fn is_alive(&self) -> bool {
        self.0.tasks.borrow().is_some()
    }

    pub fn is_paused(&self) -> bool {
        self.0.paused.get()
    }
}

/// The task that polls a process.
struct Running(Process);

impl Future for Running {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let shared = &self.0.0;
        *shared.waker.borrow_mut() = Some(cx.waker().clone());
        let mut slot = shared.tasks.borrow_mut();
        let Some(tasks) = slot.as_mut() else {
            return Poll::Ready(());
        };
        if shared.paused.get() {
            return Poll::Pending;
        }
        let polled = on_host(shared.host, || Pin::new(tasks).poll(cx));
        if polled.is_ready() {
            let ended = slot.take();
            drop(slot);
            on_host(shared.host, || drop(ended));
        }
        polled
    }
}
