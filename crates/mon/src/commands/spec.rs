//! One row of the table of commands: signature, help, permission, flags and function.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use ::auth::Access;

pub type Handler = fn(&Command, &Context<'_>) -> Outcome;

/// Bits of [`Spec::flags`], as the `ceph` program knows them. Bit 8 ("send it to the manager") is never set:
/// the monitor answers everything itself.
pub const NOFORWARD: u32 = 1;
/// Listed by the real one only to be refused.
pub const OBSOLETE: u32 = 2;
pub const DEPRECATED: u32 = 4;
pub const HIDDEN: u32 = 32;

pub struct Spec {
    /// See `language::signature`.
    pub sig: &'static str,
    pub help: &'static str,
    pub module: &'static str,
    pub perm: &'static str,
    pub flags: u32,
    /// Set for what Ceph's manager answers: "" for the manager itself, else the name of its module.
    pub manager: Option<&'static str>,
    /// Reads, and its answer holds a secret.
    pub shows_secrets: bool,
    /// An argument that holds a secret; "" if none does.
    pub secret_arg: &'static str,
    /// It has no place here: [`Spec::help`] is the reason.
    pub absent: bool,
    /// Somebody beside the monitor carries it out first (`Command::done`).
    pub beside: bool,
    pub run: Handler,
}

impl Spec {
    pub fn access(&self) -> Access {
        let one = |c: char, access| {
            if self.perm.contains(c) {
                access
            } else {
                Access::NONE
            }
        };
        one('r', Access::R) | one('w', Access::W) | one('x', Access::X)
    }

    pub const fn flagged(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }

    pub const fn showing_secrets(mut self) -> Self {
        self.shows_secrets = true;
        self
    }

    pub const fn hiding(mut self, arg: &'static str) -> Self {
        self.secret_arg = arg;
        self
    }

    pub const fn carried_out_beside(mut self) -> Self {
        self.beside = true;
        self
    }

    /// A command of the manager (`module` ""), or of one of its modules: by the routes of the manager `mgr` capabilities
    /// are enough for it. Everything else needs the monitor's there, too.
    pub const fn by_manager(mut self, module: &'static str) -> Self {
        self.manager = Some(module);
        self
    }
}

/// `need` is module and permission: `"osd rw"`.
pub const fn spec(
    need: (&'static str, &'static str),
    sig: &'static str,
    help: &'static str,
    run: Handler,
) -> Spec {
    Spec {
        sig,
        help,
        module: need.0,
        perm: need.1,
        flags: 0,
        manager: None,
        shows_secrets: false,
        secret_arg: "",
        absent: false,
        beside: false,
        run,
    }
}

/// A command of the real thing that is listed only to be refused in clear words.
pub const fn later(need: (&'static str, &'static str), sig: &'static str) -> Spec {
    spec(need, sig, "not built in skep yet", not_built)
}

/// A command of the real thing that has no place here; the help is the reason.
pub const fn absent(need: (&'static str, &'static str), sig: &'static str, why: &'static str) -> Spec {
    Spec {
        absent: true,
        ..spec(need, sig, why, not_built)
    }
}

fn not_built(cmd: &Command, _: &Context<'_>) -> Outcome {
    Outcome::not_built(&format!("'{}'", cmd.prefix))
}
