//! Commands that Ceph gave up before 16.2, and lists only to say so. The table is data of 16.2.15.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{OBSOLETE, Spec, spec};
use types::Errno;

const fn obsolete(need: (&'static str, &'static str), sig: &'static str) -> Spec {
    spec(need, sig, "not here: obsolete in Ceph, too", refused).flagged(OBSOLETE)
}

fn refused(_: &Command, _: &Context<'_>) -> Outcome {
    let why = "command is obsolete; please check usage and/or man page";
    Outcome::error(Errno::EOPNOTSUPP, why)
}

const R: (&str, &str) = ("mds", "r");
const RW: (&str, &str) = ("mds", "rw");

#[rustfmt::skip]
pub const TABLE: &[Spec] = &[
    obsolete(("mon", "rw"), "scrub"),
    obsolete(R, "mds dump epoch?:int(0..)"),
    obsolete(R, "mds getmap epoch?:int(0..)"),
    obsolete(RW, "mds tell who:str args*:str"),
    obsolete(RW, "mds stop role:str"),
    obsolete(RW, "mds deactivate role:str"),
    obsolete(RW, "mds set_max_mds maxmds:int(0..)"),
    obsolete(RW, "mds set var:choice(max_mds|max_file_size|inline_data|allow_new_snaps|allow_multimds|allow_multimds_snaps|allow_dirfrags) val:str yes_i_really_mean_it?:bool"),
    obsolete(RW, "mds cluster_down"),
    obsolete(RW, "mds cluster_up"),
    obsolete(RW, "mds add_data_pool pool:str"),
    obsolete(RW, "mds rm_data_pool pool:str"),
    obsolete(RW, "mds remove_data_pool pool:str"),
    obsolete(RW, "mds newfs metadata:int(0..) data:int(0..) yes_i_really_mean_it?:bool"),
];
