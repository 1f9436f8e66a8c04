//! Counts what runs between [`on`] and the doors: code of the OSDs, and nothing else of the simulation.
//!
//! Invariants: of each thread apart. Outside of a metered process, and in programs that do not use it, the allocator is the
//! system's with one look at a flag.
//!
//! Callgrind is asked by its client requests (valgrind.h): instructions that change nothing, and that it knows when it runs the program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::CString;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::LocalSet;

/// What is counted, beside instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    Allocations,
    AllocatedBytes,
    DiskWrites,
    DiskBytes,
    DiskReads,
    Flushes,
    Receives,
    Sends,
    SentBytes,
}

/// By [`Count`].
pub const NAMES: [&str; 9] = [
    "allocations",
    "allocated_bytes",
    "disk_writes",
    "disk_bytes",
    "disk_reads",
    "flushes",
    "receives",
    "sends",
    "sent_bytes",
];

/// By [`Count`].
pub type Counts = [u64; NAMES.len()];

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
    static COUNTS: Cell<Counts> = const { Cell::new([0; NAMES.len()]) };
}

/// Counts where the meter is on.
pub fn count(what: Count, n: u64) {
    // A thread that ends frees what it had when its counts are gone.
    let _ = ON.try_with(|on| {
        if on.get() {
            COUNTS.with(|c| {
                let mut counts = c.get();
                counts[what as usize] += n;
                c.set(counts);
            });
        }
    });
}

fn set(on: bool) -> bool {
    let before = ON.replace(on);
    if before != on {
        callgrind::request(callgrind::TOGGLE_COLLECT, 0);
    }
    before
}

/// What `work` does is counted.
pub fn on<T>(work: impl FnOnce() -> T) -> T {
    let before = set(true);
    let out = work();
    set(before);
    out
}

/// What `work` does is not counted.
pub fn off<T>(work: impl FnOnce() -> T) -> T {
    let before = set(false);
    let out = work();
    set(before);
    out
}

/// Callgrind begins to look: it makes everything slower.
pub fn start() {
    callgrind::request(callgrind::START_INSTRUMENTATION, 0);
}

/// From here on all counts anew.
pub fn begin() {
    COUNTS.set([0; NAMES.len()]);
    callgrind::request(callgrind::ZERO_STATS, 0);
}

/// The counts since [`begin`]; callgrind writes a profile of this name.
pub fn end(name: &str) -> Counts {
    let counts = COUNTS.get();
    let name = CString::new(name).unwrap_or_default();
    callgrind::request(callgrind::DUMP_STATS_AT, name.as_ptr() as u64);
    counts
}

/// A process of which everything is counted, with all that it spawns.
pub async fn server(main: impl Future<Output = ()> + 'static) {
    // A set of its own: its tasks are polled from within.
    let tasks = LocalSet::new();
    Metered(Box::pin(async move { tasks.run_until(main).await })).await;
}

struct Metered(Pin<Box<dyn Future<Output = ()>>>);

impl Future for Metered {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        on(|| self.0.as_mut().poll(cx))
    }
}

/// The system's allocator, counted.
#[derive(Debug)]
pub struct Counting;

fn allocated(bytes: usize) {
    count(Count::Allocations, 1);
    count(Count::AllocatedBytes, bytes as u64);
}

#[allow(unsafe_code)] // the trait is
// SAFETY: all is the system allocator's; what is added does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: the caller's duty.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: the caller's duty.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        allocated(new_size);
        // SAFETY: the caller's duty.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's duty.
        unsafe { System.dealloc(ptr, layout) }
    }
}

mod callgrind {
    const BASE: u64 = (b'C' as u64) << 24 | (b'T' as u64) << 16;
    pub const ZERO_STATS: u64 = BASE + 1;
    pub const TOGGLE_COLLECT: u64 = BASE + 2;
    /// Its argument is a C string.
    pub const DUMP_STATS_AT: u64 = BASE + 3;
    pub const START_INSTRUMENTATION: u64 = BASE + 4;

    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)] // instructions of its own
    pub fn request(code: u64, argument: u64) {
        let request = [code, argument, 0, 0, 0, 0];
        // SAFETY: the rotations add up to 128 bits and the exchange is with itself, so no register changes but rdx, which is said;
        // valgrind reads `request`, and the string that an argument may point to.
        unsafe {
            std::arch::asm!(
                "rol rdi, 3",
                "rol rdi, 13",
                "rol rdi, 61",
                "rol rdi, 51",
                "xchg rbx, rbx",
                in("rax") request.as_ptr(),
                inout("rdx") 0u64 => _,
                options(nostack),
            );
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub fn request(_code: u64, _argument: u64) {}
}
