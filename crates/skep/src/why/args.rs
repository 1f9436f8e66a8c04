//! `skep why`: its arguments.

use crate::options::{ClusterArgs, Format};
use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// POOL, POOL[/NAMESPACE]/IMAGE, client.NUMBER or an address of clients (as the servers see it) [default: all that clients do]
    pub what: Option<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How long to look
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300))]
    pub seconds: u64,
    /// How to print
    #[arg(short, long, value_enum, default_value = "plain")]
    pub format: Format,
    /// Seconds to wait for the cluster, and for each answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
}
