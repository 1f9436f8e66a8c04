//! The admin socket: a Unix socket with the wire form that `ceph daemon PATH.asok ...` speaks.
//!
//! A request is one JSON object (or bare word) ended by a NUL or a newline; the answer is a big-endian
//! `u32` length and that many bytes; then the connection ends. One request a connection.

use std::future::Future;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// A longer request is refused.
const REQUEST_MAX: usize = 64 << 10;
/// A longer answer is not read by [`ask`].
const ANSWER_MAX: usize = 64 << 20;
/// A peer that neither sends nor reads for this long is dropped.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// Binds `path`, which must not be in use by a living process; a stale socket file is replaced.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // What it takes changes the cluster: for the owner alone, whatever the umask says.
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(listener)
}

/// Answers requests one after the other, for ever.
pub async fn serve<H, F>(listener: UnixListener, handler: H)
where
    H: Fn(String) -> F,
    F: Future<Output = Vec<u8>>,
{
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let one = async {
            let request = read_request(&mut stream).await?;
            let answer = handler(request).await;
            stream.write_all(&(answer.len() as u32).to_be_bytes()).await?;
            stream.write_all(&answer).await
        };
        match tokio::time::timeout(PEER_TIMEOUT, one).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => tracing::debug!("admin socket: {e}"),
            Err(_) => tracing::debug!("admin socket: peer too slow"),
        }
    }
}

async fn read_request(stream: &mut UnixStream) -> io::Result<String> {
    let mut out = Vec::new();
    loop {
        match stream.read_u8().await {
            Ok(0 | b'\n') => break,
            Ok(b) => out.push(b),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(e) => return Err(e),
        }
        if out.len() > REQUEST_MAX {
            return Err(io::Error::other("request too long"));
        }
    }
    String::from_utf8(out).map_err(io::Error::other)
}

/// Sends one request to the process behind `path` and returns its answer.
pub async fn ask(path: &Path, request: &str) -> io::Result<Vec<u8>> {
    let talk = async {
        let mut stream = UnixStream::connect(path).await?;
        stream.write_all(request.as_bytes()).await?;
        stream.write_u8(0).await?;
        let len = stream.read_u32().await? as usize;
        if len > ANSWER_MAX {
            return Err(io::Error::other(format!("answer of {len} bytes")));
        }
        let mut out = vec![0; len];
        stream.read_exact(&mut out).await?;
        Ok(out)
    };
    match tokio::time::timeout(PEER_TIMEOUT, talk).await {
        Ok(r) => r,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "no answer on the admin socket",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_one_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.asok");
        crate::task::block_on(async {
            let listener = bind(&path).unwrap();
            tokio::task::spawn_local(serve(listener, |r| async move { format!("<{r}>").into_bytes() }));
            assert_eq!(
                ask(&path, "{\"prefix\": \"version\"}").await.unwrap(),
                b"<{\"prefix\": \"version\"}>"
            );
        })
        .unwrap();
    }

    #[test]
    fn an_endless_request_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.asok");
        crate::task::block_on(async {
            let listener = bind(&path).unwrap();
            tokio::task::spawn_local(serve(listener, |_| async { b"never".to_vec() }));
            assert!(ask(&path, &"x".repeat(REQUEST_MAX + 1)).await.is_err());
        })
        .unwrap();
    }
}
