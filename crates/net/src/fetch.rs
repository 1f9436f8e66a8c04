//! Requests over HTTP or HTTPS to a service that others run, whose answers are read up to a bound: for services of identity.
//!
//! Each has a connection of its own. Redirections are not followed, and an error never has the URL's path. Whom HTTPS may trust is who a file
//! names, or whom the host trusts (its certificates, or those of `SSL_CERT_FILE`).
//!
//! Bounds: [`CONNECT_WITHIN`] to connect, [`WITHIN`] for all the rest, [`BODY_MAX`] of an answer.

use crate::http::Wire;
use crate::post::{Url, config, connect};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Method, header};
use hyper_util::rt::TokioIo;
use io::task;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsConnector;

pub const CONNECT_WITHIN: Duration = Duration::from_secs(5);
pub const WITHIN: Duration = Duration::from_secs(10);
pub const BODY_MAX: usize = 1 << 20;

/// Below the service's URL. It may have secrets, and is not shown.
pub struct Request {
    pub method: Method,
    pub path: String,
    pub headers: Vec<(&'static str, String)>,
    /// JSON; empty: none.
    pub body: String,
}

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "answer of status {}", self.status)
    }
}

/// Why there is no answer, in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// Nobody is there to be asked.
    Unreached(String),
    /// Somebody is, and did not answer to this.
    Unanswered(String),
}

/// A service by its URL. Clones are the same.
#[derive(Clone)]
pub struct Fetcher {
    base: Url,
    /// None: plain HTTP.
    tls: Option<Arc<ClientConfig>>,
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service at {}", self.base.place())
    }
}

impl Fetcher {
    /// `authorities`: certificates in PEM of who alone is trusted. Reads files of the host where there are none.
    pub fn new(base: &str, authorities: Option<&[u8]>) -> Result<Self, String> {
        let base = Url::parse(base)?;
        if base.user.is_some() {
            return Err("a URL with a password".into());
        }
        if base.path.contains('?') {
            return Err("a URL with a query".into());
        }
        let tls = match base.tls {
            true => Some(Arc::new(config(authorities)?)),
            false => None,
        };
        Ok(Self { base, tls })
    }

    /// Whether what is sent can be read on its way.
    pub fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Any status is an answer.
    pub async fn ask(&self, request: Request) -> Result<Answer, Failed> {
        let place = self.base.place();
        let late = |_| format!("no connection within {} s", CONNECT_WITHIN.as_secs());
        let stream = task::timeout(CONNECT_WITHIN, connect(&self.base)).await;
        let stream = stream.map_err(late).and_then(|s| s);
        let stream = stream.map_err(|e| Failed::Unreached(format!("{place}: {e}")))?;
        let asked = task::timeout(WITHIN, self.exchange(Wire::new(stream), request)).await;
        let answer = asked.unwrap_or_else(|_| Err(format!("no answer within {} s", WITHIN.as_secs())));
        answer.map_err(|e| Failed::Unanswered(format!("{place}: {e}")))
    }

    async fn exchange(&self, wire: Wire, asked: Request) -> Result<Answer, String> {
        let mut request = hyper::Request::builder()
            .method(asked.method)
            .uri(format!("{}{}", self.base.path.trim_end_matches('/'), asked.path))
            .header(header::HOST, self.base.authority())
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("skep/", env!("CARGO_PKG_VERSION")));
        if !asked.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in asked.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(asked.body)));
        // What the library says of it may quote a header.
        let request = request.map_err(|_| "a request that cannot be sent".to_string())?;
        let Some(config) = &self.tls else {
            return received(wire, request).await;
        };
        let name = ServerName::try_from(self.base.host.clone()).map_err(|e| e.to_string())?;
        let connector = TlsConnector::from(config.clone());
        let stream = connector.connect(name, TokioIo::new(wire)).await;
        received(TokioIo::new(stream.map_err(|e| e.to_string())?), request).await
    }
}

async fn received<W>(wire: W, request: hyper::Request<Full<Bytes>>) -> Result<Answer, String>
where
    W: hyper::rt::Read + hyper::rt::Write + Unpin,
{
    let (mut sender, connection) = http1::handshake(wire).await.map_err(|e| e.to_string())?;
    let answered = async move {
        let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, BODY_MAX).collect().await;
        Ok::<_, String>(Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.map_err(|e| e.to_string())?.to_bytes(),
        })
    };
    tokio::pin!(answered, connection);
    tokio::select! {
        biased;
        answer = &mut answered => answer,
        ended = &mut connection => match ended {
            // With the answer: the server closes behind it.
            Ok(()) => answered.await,
            Err(e) => Err(e.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::socket::Listener;
    use std::future::Future;

    /// A server of one answer.
    fn with_answer<T>(answer: Vec<u8>, then: impl AsyncFnOnce(Fetcher) -> T) -> T {
        let run = async {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let addr = listener.local_addr().unwrap();
            let acceptor = listener.start().unwrap();
            let served = task::spawn_local(async move {
                let (stream, _) = acceptor.accept().await.unwrap();
                stream.readable().await.unwrap();
                let mut asked = bytes::BytesMut::with_capacity(4096);
                let _ = stream.try_read(&mut asked);
                let mut rest = &answer[..];
                while !rest.is_empty() {
                    if stream.writable().await.is_err() {
                        break;
                    }
                    match stream.try_write(&[std::io::IoSlice::new(rest)]) {
                        Ok(n) => rest = &rest[n..],
                        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(_) => break,
                    }
                }
                String::from_utf8_lossy(&asked).into_owned()
            });
            let done = then(Fetcher::new(&format!("http://{addr}/identity/"), None).unwrap()).await;
            (done, served.await.unwrap())
        };
        let (done, asked) = on_a_thread(run);
        assert!(asked.starts_with("GET /identity/v3/x HTTP/1.1\r\n"), "{asked}");
        assert!(asked.to_ascii_lowercase().contains("x-auth-token: t"), "{asked}");
        done
    }

    fn on_a_thread<F: Future>(run: F) -> F::Output {
        task::block_on(run).unwrap()
    }

    fn request() -> Request {
        Request {
            method: Method::GET,
            path: "/v3/x".into(),
            headers: vec![("x-auth-token", "t".into())],
            body: String::new(),
        }
    }

    #[test]
    fn answers_are_read_up_to_a_bound() {
        let answer = b"HTTP/1.1 404 Not Found\r\nX-A: b\r\nContent-Length: 2\r\n\r\n{}".to_vec();
        let got = with_answer(answer, async |f| f.ask(request()).await).unwrap();
        assert_eq!((got.status, &got.body[..]), (404, &b"{}"[..]));
        assert_eq!(got.headers["x-a"], "b");
        // Without a length: until the server closes.
        let mut endless = b"HTTP/1.0 200 OK\r\n\r\n".to_vec();
        endless.resize(BODY_MAX + 4096, b'x');
        let got = with_answer(endless, async |f| f.ask(request()).await);
        let Failed::Unanswered(why) = got.unwrap_err() else {
            panic!("it was reached");
        };
        assert!(why.contains("length limit exceeded"), "{why}");
        let got = with_answer(b"nonsense\r\n\r\n".to_vec(), async |f| f.ask(request()).await);
        assert!(matches!(got, Err(Failed::Unanswered(_))));
        // Nobody listens at a port that was taken and let go.
        let gone = on_a_thread(async {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let addr = listener.local_addr().unwrap();
            drop(listener);
            let fetcher = Fetcher::new(&format!("http://{addr}"), None).unwrap();
            fetcher.ask(request()).await
        });
        assert!(matches!(gone, Err(Failed::Unreached(_))));
    }

    #[test]
    fn urls_have_no_secrets() {
        for bad in ["http://me:word@a/", "http://a/?x=1", "a", "ftp://a"] {
            assert!(Fetcher::new(bad, None).is_err(), "{bad}");
        }
        assert!(Fetcher::new("https://a", Some(b"no pem")).is_err());
        assert_eq!(
            format!("{:?}", Fetcher::new("http://a:5000/secret", None).unwrap()),
            "service at a:5000"
        );
    }
}
