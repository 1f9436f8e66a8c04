//! Whom users may have events sent to, and how they are sent.
//!
//! A user names a URL, and the gateway connects to it, from within the network that the gateway is in. So what only machines of its own are to reach (loopback, link-local addresses, where
//! clouds have their metadata) is refused, unless whoever runs the gateway lists it; and with a list nothing else is allowed. The address is judged when it is connected to: whatever
//! a name meant before. Nothing of an answer is told but its status.

use net::post::{self, Held, Trust, Url};
use std::future::Future;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const URL_MAX: usize = 2048;
/// For one event.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);

pub type Sending = Pin<Box<dyn Future<Output = Result<(), String>>>>;
/// Sends a body to a URL.
pub type Sender = Arc<dyn Fn(&str, String) -> Sending + Send + Sync>;

/// Hosts that are allowed: names, addresses, and `*.NAME` for what is below a name. Without any: all that is no machine's own.
#[derive(Debug, Clone, Default)]
pub struct Endpoints {
    hosts: Vec<String>,
}

/// What a gateway's own machine and its neighbours have.
fn is_inner(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let of_v6 = |ip: Ipv6Addr| {
        let first = ip.segments()[0];
        // Link-local, and the old site-local.
        first & 0xFFC0 == 0xFE80 || first & 0xFFC0 == 0xFEC0
    };
    ip.is_loopback()
        || ip.is_unspecified()
        || ip.is_multicast()
        || match ip {
            IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast() || ip.octets()[0] == 0,
            IpAddr::V6(ip) => of_v6(ip),
        }
}

impl Endpoints {
    pub fn new(hosts: &[String]) -> Self {
        Self {
            hosts: hosts.iter().map(|h| h.to_ascii_lowercase()).collect(),
        }
    }

    fn lists(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let is = |listed: &String| match listed.strip_prefix('*') {
            Some(below) => host.len() > below.len() && host.ends_with(below),
            None => *listed == host,
        };
        self.hosts.iter().any(is)
    }

    fn may(&self, host: &str, ip: IpAddr) -> bool {
        match self.hosts.is_empty() {
            true => !is_inner(ip),
            false => self.lists(host),
        }
    }

    /// What can be said of a URL before it is used.
    pub fn check(&self, url: &str) -> Result<Url, String> {
        if url.len() > URL_MAX {
            return Err(format!("a push-endpoint has at most {URL_MAX} bytes"));
        }
        for (scheme, what) in [("amqp", "AMQP"), ("kafka", "Kafka")] {
            if url.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme)) {
                return Err(format!("endpoints of {what} are not built: http:// and https:// are"));
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

    /// Certificates of authorities are read when the first URL wants them.
    pub fn sender(self) -> Sender {
        let trust: Arc<Mutex<Option<Trust>>> = Arc::default();
        Arc::new(move |url: &str, body: String| {
            let (endpoints, trust, url) = (self.clone(), trust.clone(), url.to_string());
            let sending: Sending = Box::pin(async move {
                let url = endpoints.check(&url)?;
                let trust = match url.is_tls() {
                    true => Some(trusted(&trust)?),
                    false => None,
                };
                let held = Held {
                    within: ANSWER_WITHIN,
                    trust: trust.as_ref(),
                    may: &|ip| endpoints.may(url.host(), ip),
                };
                post::post_held(&url, "application/json", body, &held).await
            });
            sending
        })
    }
}

fn trusted(known: &Mutex<Option<Trust>>) -> Result<Trust, String> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let trust = match known.take() {
        Some(trust) => trust,
        None => Trust::of_host()?,
    };
    *known = Some(trust.clone());
    Ok(trust)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_has_for_itself_is_refused() {
        let any = Endpoints::default();
        for good in ["http://hooks.example/x", "https://u:p@10.0.0.5:8443/", "http://[2001:db8::1]/", "http://192.168.1.1"] {
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
        for good in ["http://127.0.0.1:1/", "http://x.hooks.example/", "http://A.example/"] {
            assert!(listed.check(good).is_ok(), "{good}");
        }
        for bad in ["http://127.0.0.2/", "http://hooks.example/", "http://xhooks.example/", "http://b.a.example/", "http://10.0.0.1/"] {
            assert!(listed.check(bad).is_err(), "{bad}");
        }
        assert!(listed.may("a.example", [127, 0, 0, 1].into()));
    }
}
