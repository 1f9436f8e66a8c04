//! `skep bench rados|rbd`: operations per second, latencies, and the processor time that they take, by our own clients, against any
//! cluster.
//!
//! Each client is a thread with connections of its own and a [`target::Target`]: objects, or an image. `depth` tasks on it do one operation
//! after the other. What is written overwrites blocks of what was filled before, so the steady state is measured.

pub mod args;
mod cpu;
mod job;
mod rados;
mod rbd;
mod report;
mod target;

use args::{BenchCommand, Job};
use node::Error;

pub fn run(args: &args::Bench) -> Result<(), Error> {
    match &args.command {
        BenchCommand::Rados(a) => {
            rados::check(a)?;
            let a = a.clone();
            let target = move |client, number| rados::Objects::make(client, number, a.clone());
            job::run("rados", &job_of(args), target)
        }
        BenchCommand::Rbd(a) => {
            rbd::check(a)?;
            let a = a.clone();
            let target = move |client, number| rbd::Disk::make(client, number, a.clone());
            job::run("rbd", &job_of(args), target)
        }
    }
}

fn job_of(args: &args::Bench) -> Job {
    match &args.command {
        BenchCommand::Rados(a) => a.job.clone(),
        BenchCommand::Rbd(a) => a.job.clone(),
    }
}
