//! Whether another process waits in vain: what the kernel says of the signals of a thread.

/// SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU: who is stopped goes on waiting behind it.
const STOPS: u64 = 0b11111 << 17;

/// Whether a thread has a signal to hear that it does not hold back. None: it cannot be seen from here.
pub fn is_pending(thread: u32) -> Option<bool> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    pending_in(&status)
}

fn pending_in(status: &str) -> Option<bool> {
    let mask = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let (own, shared, blocked) = (mask("SigPnd:")?, mask("ShdPnd:")?, mask("SigBlk:")?);
    Some((own | shared) & !blocked & !STOPS != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(own: u64, shared: u64, blocked: u64) -> String {
        format!(
            "Name:\tx\nSigQ:\t0/100\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t00\n"
        )
    }

    #[test]
    fn what_is_held_back_wakes_nobody() {
        assert_eq!(pending_in(&status(0, 0, 0)), Some(false));
        assert_eq!(pending_in(&status(0x100, 0, 0)), Some(true));
        assert_eq!(pending_in(&status(0, 0x200, 0)), Some(true));
        assert_eq!(pending_in(&status(0x2, 0x200, 0x202)), Some(false));
        assert_eq!(pending_in(&status(1 << 18, 1 << 19, 0)), Some(false));
        assert_eq!(pending_in("Name:\tx\n"), None);
    }

    #[test]
    fn a_thread_is_seen_and_one_that_is_not_there_is_not() {
        assert!(is_pending(std::process::id()).is_some());
        assert_eq!(is_pending(u32::MAX), None);
    }
}
