//! `skep cluster`: where the cluster's state is kept.

use crate::args::{Cluster, ClusterCommand, MoveToEtcd, Rebuild};
use node::{DataDir, Error};

pub fn run(args: &Cluster) -> Result<(), Error> {
    match &args.command {
        ClusterCommand::MoveToEtcd(a) => move_to_etcd(a),
        ClusterCommand::Rebuild(a) => rebuild(a),
    }
}

fn move_to_etcd(args: &MoveToEtcd) -> Result<(), Error> {
    let dir = DataDir::existing(&args.place.dir())?;
    let etcd = args
        .etcd
        .settings()
        .ok_or_else(|| Error::Usage("name etcd's endpoints: --etcd http://HOST:2379".into()))?;
    let bar = crate::up::spinner("opening");
    let moved = io::task::block_on(node::move_to_etcd(
        &dir,
        etcd,
        args.bind,
        args.host.as_deref(),
        &|what| bar.set_message(what.to_string()),
    ));
    bar.finish_and_clear();
    let moved = moved.map_err(|source| Error::Io {
        what: "runtime".into(),
        source,
    })??;
    println!(
        "cluster {}: {} keys, {} bytes are in etcd, read back and compared",
        moved.fsid, moved.keys, moved.bytes
    );
    println!("start it as before: skep up --data {}", dir.root().display());
    Ok(())
}

fn rebuild(args: &Rebuild) -> Result<(), Error> {
    let dir = DataDir::existing(&args.place.dir())?;
    let bar = crate::up::spinner("opening");
    let done = io::task::block_on(node::rebuild(&dir, &args.from, &|what| {
        bar.set_message(what.to_string())
    }));
    bar.finish_and_clear();
    let done = done.map_err(|source| Error::Io {
        what: "runtime".into(),
        source,
    })??;
    for (path, copy) in &done.found {
        match copy {
            Ok(version) => println!("  {}: version {version}", path.display()),
            Err(why) => println!("  {}: {why}", path.display()),
        }
    }
    println!(
        "cluster {}: rebuilt from version {} of {}. What was changed after that is lost: settings, keys, pools.",
        done.fsid, done.version, done.stamp
    );
    println!("start it as before: skep up --data {}", dir.root().display());
    Ok(())
}
