//! Real etcd processes for a test: on loopback, in a directory of their own, gone with the test.

use crate::{Options, Tls};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Members of one etcd cluster.
pub struct Servers {
    dir: tempfile::TempDir,
    members: Vec<Member>,
    secure: bool,
}

struct Member {
    client: u16,
    peer: u16,
    process: Option<Child>,
}

/// Ports that are free now; the listeners are held together so that they differ.
#[allow(clippy::disallowed_methods)]
fn free_ports(n: usize) -> Vec<u16> {
    let held: Vec<_> = (0..n)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    held.iter().map(|l| l.local_addr().unwrap().port()).collect()
}

fn run(program: &str, args: &[&str], dir: &Path) {
    let done = Command::new(program)
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(
        done.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// An authority, a certificate for 127.0.0.1 and one for the client.
fn make_certificates(dir: &Path) {
    let req = [
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ];
    let own = [
        "-x509",
        "-days",
        "2",
        "-subj",
        "/CN=authority",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
    ];
    run("openssl", &[&req[..], &own[..]].concat(), dir);
    for (name, ext) in [
        ("server", "subjectAltName=IP:127.0.0.1"),
        ("client", "extendedKeyUsage=clientAuth"),
    ] {
        io::files::replace(&dir.join("ext"), ext, 0o600).unwrap();
        let (key, csr, pem, subject) = (
            format!("{name}.key"),
            format!("{name}.csr"),
            format!("{name}.pem"),
            format!("/CN={name}"),
        );
        let ask = ["-subj", &subject, "-keyout", &key, "-out", &csr];
        run("openssl", &[&req[..], &ask[..]].concat(), dir);
        let sign = [
            "x509",
            "-req",
            "-in",
            &csr,
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
        ];
        let out = ["-days", "2", "-extfile", "ext", "-out", &pem];
        run("openssl", &[&sign[..], &out[..]].concat(), dir);
    }
}

impl Servers {
    pub fn start(n: usize) -> Self {
        Self::begin(n, false)
    }

    /// With certificates on both sides.
    pub fn start_secure() -> Self {
        Self::begin(1, true)
    }

    fn begin(n: usize, secure: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        if secure {
            make_certificates(dir.path());
        }
        let ports = free_ports(2 * n);
        let members = ports.chunks(2).map(|p| Member {
            client: p[0],
            peer: p[1],
            process: None,
        });
        let mut servers = Self {
            members: members.collect(),
            dir,
            secure,
        };
        for i in 0..n {
            servers.up(i);
        }
        servers
    }

    fn url(&self, i: usize) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.members[i].client)
    }

    pub fn options(&self) -> Options {
        let tls = self.secure.then(|| {
            let pem = |name: &str| {
                io::files::read(&self.dir.path().join(name))
                    .unwrap()
                    .unwrap()
                    .into_bytes()
            };
            Tls {
                authority: pem("ca.pem"),
                identity: Some((pem("client.pem"), pem("client.key"))),
            }
        });
        Options {
            tls,
            ..Options::new((0..self.members.len()).map(|i| self.url(i)).collect())
        }
    }

    fn data(&self, i: usize) -> PathBuf {
        self.dir.path().join(format!("m{i}"))
    }

    /// Starts a member, anew or again.
    pub fn up(&mut self, i: usize) {
        let peer = |m: &Member| format!("http://127.0.0.1:{}", m.peer);
        let all: Vec<String> = self
            .members
            .iter()
            .enumerate()
            .map(|(i, m)| format!("m{i}={}", peer(m)))
            .collect();
        let (client, own) = (self.url(i), peer(&self.members[i]));
        let mut command = Command::new("etcd");
        command
            .args(["--name", &format!("m{i}"), "--initial-cluster", &all.join(",")])
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args(["--listen-peer-urls", &own, "--initial-advertise-peer-urls", &own])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .arg("--data-dir")
            .arg(self.data(i));
        if self.secure {
            command
                .args(["--cert-file", "server.pem", "--key-file", "server.key"])
                .args(["--trusted-ca-file", "ca.pem", "--client-cert-auth"]);
        }
        let process = command
            .current_dir(self.dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("etcd (Debian: etcd-server) is needed: {e}"));
        self.members[i].process = Some(process);
    }

    /// SIGKILL.
    pub fn kill(&mut self, i: usize) {
        let mut process = self.members[i].process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// STOP or CONT.
    pub fn signal(&self, i: usize, signal: &str) {
        let pid = self.members[i].process.as_ref().unwrap().id().to_string();
        run("kill", &[&format!("-{signal}"), &pid], self.dir.path());
    }

    /// Removes what a dead member has stored.
    pub fn wipe(&self, i: usize) {
        assert!(self.members[i].process.is_none());
        std::fs::remove_dir_all(self.data(i)).unwrap();
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for m in &mut self.members {
            if let Some(mut process) = m.process.take() {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}
