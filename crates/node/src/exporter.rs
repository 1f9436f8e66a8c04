//! `/metrics` over HTTP: the cluster's figures where this process has the active manager, and what the daemons of this process
//! count, in Prometheus' text format, or asked by `?format=influx` as line protocol.
//!
//! A node's listens on the loopback address alone: whoever shall see it from elsewhere puts a proxy before it. A gateway's that runs by itself
//! listens where it is told. Only GET of `/metrics` and `/` is answered.
//!
//! Bounds: [`CONNECTIONS_MAX`] connections, each for one request, [`REQUEST_MAX`] long and with a head of [`HEAD_BYTES`].

use crate::influx;
use crate::role::{MonitorAccess, Registries};
use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use io::socket::{Acceptor, Listener, Stream};
use io::task;
use metrics::{Kind, Registry, Value};
use net::http::Wire;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

const CONNECTIONS_MAX: usize = 16;
const REQUEST_MAX: Duration = Duration::from_secs(10);
const HEAD_BYTES: usize = 16 << 10;
/// After an error of accepting, such as that of too many open files.
const PAUSE: Duration = Duration::from_secs(1);
/// What roles and loggers of gateways begin with, before their name, that of an operation, and that of a bucket; and the logger of what becomes of events.
const GATEWAY: &str = "s3.";
const EVENTS: &str = "s3_events";
const OPERATION: &str = "s3_operation.";
const BUCKET: &str = "s3_bucket.";
/// Loggers whose figures Ceph's boards look at, and that of our traces.
const LOGGERS: [&str; 8] = [
    "osd",
    "bluestore",
    "mon",
    "mds",
    "mds_server",
    "mds_sessions",
    "objecter",
    "traces",
];
/// The monitor has them of all OSDs.
const OF_CLUSTER: [&str; 3] = ["osd_numpg", "osd_stat_bytes", "osd_stat_bytes_used"];

/// Serves for as long as the process runs. A port that is taken is said, and no reason not to start. `access`: to the monitor of
/// this process, if one runs.
pub(crate) fn start(port: u16, access: Option<MonitorAccess>, registries: Registries) {
    let addr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    match Listener::bind(addr).and_then(Listener::start) {
        Ok(acceptor) => drop(task::spawn_local(serve(acceptor, access, registries))),
        Err(e) => tracing::warn!("no /metrics: {addr} cannot be listened on: {e}"),
    }
}

/// The same for a gateway of this name that runs by itself: what it counts. An address that cannot be listened on is an error.
pub fn start_of_gateway(addr: SocketAddr, name: &str, registry: &Registry) -> std::io::Result<()> {
    let acceptor = Listener::bind(addr).and_then(Listener::start)?;
    let registries = Registries::default();
    registries.show(&format!("{GATEWAY}{name}"), registry.clone());
    drop(task::spawn_local(serve(acceptor, None, registries)));
    Ok(())
}

async fn serve(acceptor: Acceptor, access: Option<MonitorAccess>, registries: Registries) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        match acceptor.accept().await {
            Ok((stream, _)) => {
                let answered = connection(stream, access.clone(), registries.clone());
                drop(task::spawn_local(async move {
                    let _ = task::timeout(REQUEST_MAX, answered).await;
                    drop(permit);
                }));
            }
            Err(e) => {
                tracing::warn!("/metrics: {e}");
                task::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(stream: Stream, access: Option<MonitorAccess>, registries: Registries) {
    let service = service_fn(move |request| {
        let (access, registries) = (access.clone(), registries.clone());
        async move { Ok::<_, Infallible>(answer(&request, &access, &registries).await) }
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(Wire::new(stream), service);
    if let Err(e) = served.await {
        tracing::debug!("/metrics: {e}");
    }
}

async fn answer<B>(
    request: &Request<B>,
    access: &Option<MonitorAccess>,
    of: &Registries,
) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return page(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET is answered here\n".into(),
        );
    }
    match request.uri().path() {
        "/metrics" => match of_cluster(access).await {
            Some(cluster) => {
                let figures = cluster + &counted(of);
                let words = request.uri().query().unwrap_or_default();
                match words.split('&').any(|word| word == "format=influx") {
                    true => page(StatusCode::OK, influx::lines(&figures)),
                    false => page(StatusCode::OK, figures),
                }
            }
            None => page(
                StatusCode::SERVICE_UNAVAILABLE,
                "the monitor of this process does not answer\n".into(),
            ),
        },
        "/" => page(StatusCode::OK, "Figures of this cluster: /metrics\n".into()),
        _ => page(StatusCode::NOT_FOUND, "there is only /metrics here\n".into()),
    }
}

/// What the monitor of this process says of the cluster: nothing where another one's manager does. None: it does not answer.
async fn of_cluster(access: &Option<MonitorAccess>) -> Option<String> {
    let Some(access) = access else {
        return Some(String::new());
    };
    let asked = access.ask(r#"{"prefix":"skep metrics"}"#.to_string()).await;
    let said = asked.filter(|a| a.code == 0)?;
    Some(String::from_utf8_lossy(&said.data).into_owned())
}

fn page(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut out = Response::new(Full::new(Bytes::from(text)));
    *out.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    out.headers_mut().insert(header::CONTENT_TYPE, kind);
    out
}

/// How a label's text stands within quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// What a logger's families begin with, and their labels; None: they are not shown. Gateways' are labelled as Ceph's module does: by an instance
/// whose daemon `ceph_rgw_metadata` tells.
fn place(daemon: &str, logger: &str) -> Option<(String, String)> {
    let label = |name: &str, text: &str| format!("{name}=\"{}\"", escaped(text));
    if let Some(name) = daemon.strip_prefix(GATEWAY) {
        let instance = label("instance_id", name);
        return match (logger.strip_prefix(OPERATION), logger.strip_prefix(BUCKET)) {
            (Some(of), _) => Some((
                "skep_s3_operation".into(),
                format!("{instance},{}", label("operation", of)),
            )),
            (_, Some(of)) => Some((
                "skep_s3_bucket".into(),
                format!("{instance},{}", label("bucket", of)),
            )),
            _ if logger == EVENTS => Some(("skep_s3_events".into(), instance)),
            _ => (logger == "rgw").then(|| ("rgw".into(), instance)),
        };
    }
    let shown = LOGGERS.contains(&logger);
    shown.then(|| (logger.to_string(), label("ceph_daemon", daemon)))
}

/// Families by name: their kind, and their lines.
#[derive(Default)]
struct Page(BTreeMap<String, (&'static str, String)>);

impl Page {
    fn put(&mut self, name: &str, kind: &'static str, labels: &str, value: impl Display) {
        let name = format!("ceph_{name}");
        let lines = &mut self.0.entry(name.clone()).or_insert((kind, String::new())).1;
        lines.push_str(&format!("{name}{{{labels}}} {value}\n"));
    }

    fn text(self) -> String {
        let family = |(name, (kind, lines))| format!("# TYPE {name} {kind}\n{lines}");
        self.0.into_iter().map(family).collect()
    }
}

/// What the daemons of this process count. Times are in seconds.
fn counted(registries: &Registries) -> String {
    let mut page = Page::default();
    for (daemon, registry) in registries.all() {
        registry.visit(&mut |logger, spec, value| {
            let Some((family, labels)) = place(&daemon, logger) else {
                return;
            };
            let name = format!("{family}_{}", spec.name);
            if OF_CLUSTER.contains(&name.as_str()) {
                return;
            }
            let mut pair = |count: u64, sum: String| {
                page.put(&format!("{name}_sum"), "counter", &labels, sum);
                page.put(&format!("{name}_count"), "counter", &labels, count);
            };
            match value {
                Value::Number(n) if spec.kind == Kind::Gauge => page.put(&name, "gauge", &labels, n),
                Value::Number(n) => page.put(&name, "counter", &labels, n),
                Value::Time { count, sum } => pair(count, sum.as_secs_f64().to_string()),
                Value::Sum { count, sum } => pair(count, sum.to_string()),
                Value::Histogram(_) => {}
            }
        });
        if let Some(name) = daemon.strip_prefix(GATEWAY)
            && registry.tables().iter().any(|(logger, _)| logger == "rgw")
        {
            page.put("rgw_metadata", "gauge", &of_gateway(name), 1);
        }
    }
    page.text()
}

/// Labels of what is told of a gateway.
fn of_gateway(name: &str) -> String {
    let labels = [
        ("ceph_daemon", format!("rgw.{name}")),
        ("hostname", io::files::hostname()),
        ("ceph_version", types::release::VERSION_TEXT.to_string()),
        ("instance_id", name.to_string()),
    ];
    let labels = labels.map(|(label, text)| format!("{label}=\"{}\"", escaped(&text)));
    labels.join(",")
}
