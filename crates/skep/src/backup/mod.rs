//! `skep backup`: backups of images, of Skep's clusters and Ceph's, in repositories that stand alone.

pub mod args;
mod hand;
mod policies;
mod work;

use args::{BackupCommand, PolicyCommand};
use node::Error;

pub fn run(args: &args::Backup) -> Result<(), Error> {
    match &args.command {
        BackupCommand::Init(a) => hand::init(a),
        BackupCommand::Ls(a) => hand::ls(a),
        BackupCommand::Restore(a) => hand::restore(a),
        BackupCommand::Verify(a) => hand::verify(a),
        BackupCommand::Prune(a) => hand::prune(a),
        BackupCommand::Repair(a) => hand::repair(a),
        BackupCommand::Unlock(a) => hand::unlock(a),
        BackupCommand::Rm(a) => hand::rm(a),
        BackupCommand::Trial(a) => hand::trial(a),
        BackupCommand::Run(a) if a.of.is_some() => hand::run(a),
        BackupCommand::Run(a) => work::run(a),
        BackupCommand::Serve(a) => work::serve(a),
        BackupCommand::Policy(PolicyCommand::Set(a)) => policies::set(a),
        BackupCommand::Policy(PolicyCommand::Ls(a)) => policies::ls(a),
        BackupCommand::Policy(PolicyCommand::Rm(a)) => policies::rm(a),
    }
}
