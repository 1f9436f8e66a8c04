//! Whom users may have events sent to, and how they are sent.
//!
//! A user names a URL, and the gateway connects to it, from within the network that the gateway is in. So what a machine has for itself (its own addresses, link-local ones, a cloud's metadata)
//! is refused, unless whoever runs the gateway lists it by name; and with a list nothing else is allowed. The address is judged when it is connected to, whatever a name meant before.
//! Nothing of an answer is told but its status.
//!
//! Bounds: [`ANSWER_WITHIN`] for an event; [`LOOKUPS_MAX`] names are looked up at a time, [`LOOKUPS_OF_OWNER`] for one user: a lookup goes on when nobody waits for it any more.

use io::task;
use net::post::{self, Held, Trust, Url};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

const URL_MAX: usize = 2048;
const LOOKUPS_MAX: usize = 64;
const LOOKUPS_OF_OWNER: usize = 4;
/// For one event.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);

pub type Sending = Pin<Box<dyn Future<Output = Result<(), String>>>>;
/// Sends for a user, to a URL, a body.
pub type Sender = Arc<dyn Fn(&str, &str, String) -> Sending + Send + Sync>;

/// Hosts that are allowed: names, addresses, and `*.NAME` for what is below a name. Without any: all that is no machine's own.
#[derive(Debug, Clone, Default)]
pub struct Endpoints {
    hosts: Vec<String>,
}

/// Where clouds answer their machines, and them alone, other than link-local.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254),
    Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254),
];

/// The address of version 4 that one of version 6 leads to, by whatever translates it.
fn within(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0, 0xffff | 0, high, low] => Some(of(high, low)),
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

/// What a gateway's own machine and its neighbours have.
fn is_inner(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            ip.is_loopback()
                || ip.is_link_local()
                || ip.is_multicast()
                || ip.is_broadcast()
                || ip.octets()[0] == 0
                || METADATA_V4.contains(&ip)
        }
        IpAddr::V6(ip) => {
            let first = ip.segments()[0];
            // Link-local, and the old site-local.
            let local = first & 0xFFC0 == 0xFE80 || first & 0xFFC0 == 0xFEC0;
            local
                || ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_multicast()
                || METADATA_V6.contains(&ip)
                || within(ip).is_some_and(|ip| is_inner(IpAddr::V4(ip)))
        }
    }
}

impl Endpoints {
    pub fn new(hosts: &[String]) -> Self {
        Self {
            hosts: hosts.iter().map(|h| h.to_ascii_lowercase()).collect(),
        }
    }

    /// By its name, not by what is above it.
    fn names(&self, host: &str) -> bool {
        self.hosts.iter().any(|listed| listed.eq_ignore_ascii_case(host))
    }

    fn lists(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let is_below = |listed: &String| {
            let below = listed.strip_prefix('*');
            below.is_some_and(|below| host.len() > below.len() && host.ends_with(below))
        };
        self.names(&host) || self.hosts.iter().any(is_below)
    }

    fn may(&self, host: &str, ip: IpAddr) -> bool {
        match self.hosts.is_empty() {
            true => !is_inner(ip),
            // Whoever has a name below one that is listed says what it means.
            false => self.names(host) || (self.lists(host) && !is_inner(ip)),
        }
    }

    /// What can be said of a URL before it is used.
    pub fn check(&self, url: &str) -> Result<Url, String> {
        if url.len() > URL_MAX {
            return Err(format!("a push-endpoint has at most {URL_MAX} bytes"));
        }
        for (scheme, what) in [("amqp", "AMQP"), ("kafka", "Kafka")] {
            if url
                .get(..scheme.len())
                .is_some_and(|s| s.eq_ignore_ascii_case(scheme))
            {
                return Err(format!(
                    "endpoints of {what} are not built: http:// and https:// are"
                ));
            }
        }
        let parsed = Url::parse(url).map_err(|e| format!("the push-endpoint is {e}"))?;
        let refused = match parsed.host().parse::<IpAddr>() {
            Ok(ip) => !self.may(parsed.host(), ip),
            Err(_) => !self.hosts.is_empty() && !self.lists(parsed.host()),
        };
        match refused {
            true => Err("this gateway sends no events to that host".into()),
            false => Ok(parsed),
        }
    }

    pub fn sender(self) -> Sender {
        let of = Arc::new(Of {
            endpoints: self,
            trust: Mutex::default(),
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            of_owners: Mutex::default(),
        });
        Arc::new(move |owner: &str, url: &str, body: String| {
            let (of, owner, url) = (of.clone(), owner.to_string(), url.to_string());
            let sending: Sending = Box::pin(async move {
                let sent = task::timeout(ANSWER_WITHIN, of.send(&owner, &url, body)).await;
                sent.unwrap_or_else(|_| Err("no answer in time".into()))
            });
            sending
        })
    }
}

/// What senders share.
struct Of {
    endpoints: Endpoints,
    /// As it was read when the first URL wanted it.
    trust: Mutex<Option<Result<Trust, String>>>,
    lookups: Arc<Semaphore>,
    of_owners: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

impl Of {
    fn trusted(&self) -> Result<Trust, String> {
        let mut known = self.trust.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_with(Trust::of_host).clone()
    }

    fn lookups_of(&self, owner: &str) -> Arc<Semaphore> {
        let mut of = self.of_owners.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody has.
        if of.len() > LOOKUPS_MAX {
            of.retain(|_, room| Arc::strong_count(room) > 1);
        }
        let room = || Arc::new(Semaphore::new(LOOKUPS_OF_OWNER));
        of.entry(owner.to_string()).or_insert_with(room).clone()
    }

    /// Addresses that may be connected to.
    async fn addresses(&self, owner: &str, url: &Url) -> Result<Vec<SocketAddr>, String> {
        let busy = |_| "names cannot be looked up now".to_string();
        let of_owner = self.lookups_of(owner).acquire_owned().await.map_err(busy)?;
        let of_all = self.lookups.clone().acquire_owned().await.map_err(busy)?;
        let asked = url.clone();
        let found = task::spawn_local(async move {
            let found = post::addresses(&asked).await;
            // However long that took.
            drop((of_owner, of_all));
            found
        });
        let mut found = found.await.map_err(|_| "the gateway is stopping")??;
        found.retain(|addr| self.endpoints.may(url.host(), addr.ip()));
        Ok(found)
    }

    async fn send(&self, owner: &str, url: &str, body: String) -> Result<(), String> {
        let url = self.endpoints.check(url)?;
        let trust = match url.is_tls() {
            true => Some(self.trusted()?),
            false => None,
        };
        let to = self.addresses(owner, &url).await?;
        let held = Held {
            within: ANSWER_WITHIN,
            trust: trust.as_ref(),
            to: &to,
            own: self.endpoints.names(url.host()),
        };
        post::post_held(&url, "application/json", body, &held).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_has_for_itself_is_refused() {
        let any = Endpoints::default();
        for good in [
            "http://hooks.example/x",
            "https://u:p@10.0.0.5:8443/",
            "http://[2001:db8::1]/",
            "http://192.168.1.1",
        ] {
            assert!(any.check(good).is_ok(), "{good}");
        }
        for bad in [
            "http://127.0.0.1:9283/",
            "http://127.9.9.9",
            "http://0.0.0.0/",
            "http://0.1.2.3/",
            "http://169.254.169.254/latest",
            "http://[::1]/",
            "http://[::]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[fe80::1]/",
            "http://[febf::1]/",
            "http://[ff02::1]/",
            "http://255.255.255.255/",
            "http://100.100.100.200/",
            "http://[fd00:ec2::254]/",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://[2002:7f00:1::]/",
            "http://[::127.0.0.1]/",
            "amqp://h/",
            "AMQPS://h/",
            "kafka://h/",
            "ftp://h/",
            "h",
            "",
        ] {
            assert!(any.check(bad).is_err(), "{bad}");
        }
        // A name is judged by the address that it has when it is used.
        assert!(any.check("http://localhost/").is_ok() && !any.may("localhost", [127, 0, 0, 1].into()));
        assert!(any.check(&format!("http://h/{}", "x".repeat(URL_MAX))).is_err());
    }

    #[test]
    fn a_list_allows_what_is_on_it_alone() {
        let listed = Endpoints::new(&["127.0.0.1".into(), "*.Hooks.example".into(), "a.example".into()]);
        for good in [
            "http://127.0.0.1:1/",
            "http://x.hooks.example/",
            "http://A.example/",
        ] {
            assert!(listed.check(good).is_ok(), "{good}");
        }
        for bad in [
            "http://127.0.0.2/",
            "http://hooks.example/",
            "http://xhooks.example/",
            "http://b.a.example/",
            "http://10.0.0.1/",
        ] {
            assert!(listed.check(bad).is_err(), "{bad}");
        }
        assert!(listed.may("a.example", [127, 0, 0, 1].into()));
        // Who has a name below one that is listed may have it mean anything.
        assert!(!listed.may("x.hooks.example", [127, 0, 0, 1].into()));
        assert!(listed.may("x.hooks.example", [10, 0, 0, 1].into()));
    }
}
