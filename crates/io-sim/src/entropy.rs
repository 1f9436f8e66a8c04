//! The random numbers that std takes past every argument: the keys of `HashMap`, which decide the order in which it
//! is walked.
//!
//! std asks the C library's `getrandom` through a weak symbol, so that a program may put its own in its place. Ours gives
//! what the seed says in threads that called [`seed`], and asks the kernel in all others.

use crate::Dice;
use std::cell::RefCell;

thread_local! {
    static SEEDED: RefCell<Option<Dice>> = const { RefCell::new(None) };
}

/// From now on std's random numbers in this thread follow from `seed`. To be called before the thread makes its first
/// `HashMap`: std asks once a thread.
pub fn seed(seed: u64) {
    SEEDED.with(|s| *s.borrow_mut() = Some(Dice::new(seed)));
}

#[allow(unsafe_code)] // a C symbol, called with the caller's buffer
mod symbol {
    use super::SEEDED;

    /// # Safety
    /// As the C library's: `buf` has room for `len` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn getrandom(buf: *mut u8, len: usize, flags: u32) -> isize {
        let word = move |i: usize, b: u8| {
            // SAFETY: i < len, and the caller lends so many bytes.
            unsafe { buf.add(i).write(b) }
        };
        let drawn = SEEDED.try_with(|s| {
            let mut s = s.borrow_mut();
            let dice = s.as_mut()?;
            (0..len).for_each(|i| word(i, dice.roll() as u8));
            Some(())
        });
        match drawn {
            Ok(Some(())) => len as isize,
            // SAFETY: the same arguments, to the kernel.
            _ => unsafe { libc::syscall(libc::SYS_getrandom, buf, len, flags) as isize },
        }
    }
}
