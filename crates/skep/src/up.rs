//! `skep up`: starts a node, says where the client files lie, serves until it is told to stop.

use crate::{args, service};
use indicatif::{ProgressBar, ProgressStyle};
use node::{AuthMode, DataDir, Error, First, Msgr1Port, Node, StartOptions, TraceTo};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub fn run(args: &args::Up) -> Result<(), Error> {
    // First: what cannot be meant leaves nothing behind.
    let options = options(args)?;
    let dir = DataDir::create(&args.place.dir())?;
    let s3 = options.s3.as_ref().map(|s3| {
        let scheme = if s3.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", s3.listen)
    });
    let console = options.console.as_ref().map(|c| {
        let tls = c.certificate.is_some() || !c.listen.ip().is_loopback();
        format!("{}://{}", if tls { "https" } else { "http" }, c.listen)
    });
    if std::env::var_os("SKEP_TEST_PANICS").is_some_and(|v| v == "1") {
        io::panics::allow();
    }
    node::watch_this_thread();
    let starting = end_while_starting().map_err(|source| Error::Io {
        what: "signals".into(),
        source,
    })?;
    let start = Instant::now();
    let bar = spinner("starting");
    let done = io::task::block_on(async {
        let node = Node::start(&dir, options, &|what| {
            service::starting(what);
            bar.set_message(what.to_string());
        })
        .await;
        bar.finish_and_clear();
        let mut node = node?;
        greet(&node, &dir, start.elapsed(), (s3, console));
        service::ready(&format!("serving {}", dir.root().display()));
        service::lives();
        match node.serve(asked_to_end(&starting)).await {
            Ok(why) => {
                eprintln!("{why}: stopping");
                service::stopping(why);
                node.stop().await;
                Ok(())
            }
            Err(e) => {
                eprintln!("stopping: {e}");
                service::stopping(&e.to_string());
                node.fall().await;
                Err(e)
            }
        }
    });
    done.map_err(|source| Error::Io {
        what: "runtime".into(),
        source,
    })?
}

/// Ends a process that still starts when it is told to, as the kernel does it by itself; but not for the first process of a container, which
/// would wait for etcd or its disks until somebody kills it. Until the flag is false.
fn end_while_starting() -> std::io::Result<Arc<AtomicBool>> {
    let starting = Arc::new(AtomicBool::new(true));
    if std::process::id() == 1 {
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, starting.clone())?;
        }
    }
    Ok(starting)
}

/// Completes when the process is asked to end; from the first look on it is no longer ended at once.
async fn asked_to_end(starting: &AtomicBool) -> std::io::Result<&'static str> {
    let mut asked = pin!(io::task::termination());
    std::future::poll_fn(|cx| {
        // The first look registers for the signals: none is lost between the two.
        let said = asked.as_mut().poll(cx);
        starting.store(false, Ordering::Relaxed);
        said
    })
    .await
}

/// What the command line says of the node.
pub fn options(args: &args::Up) -> Result<StartOptions, Error> {
    Ok(StartOptions {
        osds: args.osds,
        devices: args.device.clone(),
        bind: args.bind,
        mon_port: args.mon_port,
        msgr1: msgr1(args)?,
        msgr1_first: args.msgr1_first,
        auth: args.auth.map(|a| match a {
            args::Auth::Cephx => AuthMode::Cephx,
            args::Auth::None => AuthMode::None,
        }),
        osd_size: args.osd_size,
        osd_memory: args.osd_memory,
        keep_free: args.keep_free,
        spare: spare(args)?,
        disk_io: match args.disk_io {
            args::DiskIo::Auto => io::disk::Mode::Auto,
            args::DiskIo::Direct => io::disk::Mode::Direct,
            args::DiskIo::Plain => io::disk::Mode::Plain,
        },
        osd_keys: args.osd_keys.clone(),
        osd_threads: args.osd_threads,
        roles: (!args.roles.is_empty()).then(|| args.roles.clone()),
        allow_pool_delete: args.allow_pool_delete,
        metrics_port: args.metrics_port,
        trace_to: args.trace_to.as_deref().map(TraceTo::parse).transpose()?,
        s3: s3(args),
        console: console(args),
        host: args.host.clone(),
        etcd: args.etcd.settings(),
        first: match (args.create, args.join) {
            (true, _) => First::Create,
            (_, true) => First::Join,
            _ => First::Unsaid,
        },
    })
}

/// With the former option beside it, which has to say the same.
fn msgr1(args: &args::Up) -> Result<Option<Msgr1Port>, Error> {
    match (args.no_msgr1, args.msgr1_port) {
        (true, Some(Msgr1Port::At(port))) => Err(Error::Usage(format!(
            "--no-msgr1 and --msgr1-port {port} exclude each other"
        ))),
        (true, _) => Ok(Some(Msgr1Port::Off)),
        (false, said) => Ok(said),
    }
}

/// In the same way. Files of before have `spare = false` beside it, which said nothing then.
fn spare(args: &args::Up) -> Result<Option<bool>, Error> {
    match (args.no_spare, args.spare) {
        (true, Some(args::Switch::On)) => Err(Error::Usage(
            "--no-spare and --spare on exclude each other".into(),
        )),
        (true, _) => Ok(Some(false)),
        (false, said) => Ok(said.map(|s| s == args::Switch::On)),
    }
}

#[cfg(feature = "s3")]
fn s3(args: &args::Up) -> Option<node::S3Options> {
    args.s3.then(|| node::S3Options {
        listen: args.s3_listen,
        said: args.s3_tuning.said(),
        split_at: args.s3_tuning.split_at,
        day: Duration::from_secs(args.s3_tuning.lifecycle_day),
        tls: args.s3_tuning.tls(),
        usage_days: args.s3_tuning.usage_days,
        master_keys: args.s3_tuning.master_keys.clone(),
        endpoints: args.s3_tuning.endpoints.clone(),
        log_every: Duration::from_secs(args.s3_tuning.log_every),
        keystone: args.s3_tuning.keystone.clone(),
    })
}

#[cfg(not(feature = "s3"))]
fn s3(_: &args::Up) -> Option<node::S3Options> {
    None
}

#[cfg(feature = "console")]
fn console(args: &args::Up) -> Option<node::ConsoleOptions> {
    let said = &args.console;
    said.console.then(|| node::ConsoleOptions {
        listen: said.console_listen,
        certificate: args::pair(said.console_cert.as_ref(), said.console_key.as_ref()),
        hosts: said.console_hosts.clone(),
    })
}

#[cfg(not(feature = "console"))]
fn console(_: &args::Up) -> Option<node::ConsoleOptions> {
    None
}

fn greet(node: &Node, dir: &DataDir, took: Duration, (s3, console): (Option<String>, Option<String>)) {
    let s = node.settings();
    let conf = dir.conf_path();
    println!("skep {}: cluster {}", env!("CARGO_PKG_VERSION"), s.fsid);
    println!(
        "  {} OSDs, {}, auth {}",
        if s.runs("osd") { s.osds } else { 0 },
        node.mon_addr()
            .map_or("no monitor".into(), |a| format!("monitor at {a}")),
        if s.auth == AuthMode::Cephx {
            "cephx"
        } else {
            "none"
        }
    );
    if let (Some(_), Some(port)) = (node.mon_addr(), s.msgr1_port()) {
        let at = std::net::SocketAddr::new(s.bind, port);
        println!("  msgr1    {at}, for clients of messenger v1");
    }
    if let Some(etcd) = &s.etcd {
        let ids: Vec<String> = s.osd_ids().iter().map(i32::to_string).collect();
        let host = s.host.as_deref().unwrap_or("this one");
        println!("  host     {host}, OSDs {}", ids.join(", "));
        println!(
            "  etcd     {} (prefix {})",
            etcd.endpoints.join(", "),
            etcd.prefix
        );
    }
    println!("  copies   {}", copies(s));
    println!("  data     {}", dir.root().display());
    println!("  conf     {}", conf.display());
    println!("  keyring  {}", dir.keyring_path().display());
    if let Some(s3) = s3 {
        println!(
            "  s3       {s3} (keys: skep s3 user create NAME -c {})",
            conf.display()
        );
    }
    if let Some(console) = console {
        println!("  console  {console} (log in with an entity and its key, as in the keyring)");
    }
    println!("try:  ceph -c {} -s", conf.display());
    println!("ready after {:.2} s", took.as_secs_f64());
}

/// How many copies new pools get, and what to do for more.
fn copies(s: &node::Settings) -> String {
    match (&s.etcd, s.osds) {
        (Some(_), _) => "new pools: 3, on as many hosts; fewer while there are fewer hosts".into(),
        (None, 1) => "new pools: 1, on the one OSD; more with --osds 3".into(),
        (None, 2) => "new pools: 2, on both OSDs; 3 with --osds 3".into(),
        (None, n) => format!("new pools: 3, on {n} OSDs of this machine"),
    }
}

/// A spinner that shows itself only when a step takes more than a second, and only on a terminal.
pub fn spinner(what: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(what.to_string());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}
