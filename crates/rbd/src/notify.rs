//! What clients of an image tell each other by notifies on its header (docs/protocol/ceph/05-rbd.md, section 9).
//!
//! Statements are answered with nothing or with "seen"; a *request* is for the owner of the lock, who alone answers with something.
//! A request for work is answered at once; [`Message::AsyncComplete`] with its [`AsyncId`] tells that it is done.

use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer, plain_denc};
use objclass::rbd::types::SnapshotNamespace;

/// A watcher: global id of its client, and the watch's cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId {
    pub global_id: u64,
    pub cookie: u64,
}
plain_denc!(ClientId { global_id, cookie });

/// Names a piece of work that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AsyncId {
    pub client: ClientId,
    pub request: u64,
}
plain_denc!(AsyncId { client, request });

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    AcquiredLock(ClientId),
    ReleasedLock(ClientId),
    RequestLock {
        client: ClientId,
        force: bool,
    },
    HeaderUpdate,
    AsyncProgress {
        id: AsyncId,
        offset: u64,
        total: u64,
    },
    AsyncComplete {
        id: AsyncId,
        result: i32,
    },
    Resize {
        size: u64,
        id: AsyncId,
        allow_shrink: bool,
    },
    SnapCreate {
        name: Bytes,
        namespace: SnapshotNamespace,
        id: AsyncId,
    },
    SnapRemove {
        name: Bytes,
        namespace: SnapshotNamespace,
        id: AsyncId,
    },
    SnapProtect {
        name: Bytes,
        id: AsyncId,
    },
    SnapUnprotect {
        name: Bytes,
        id: AsyncId,
    },
    Flatten(AsyncId),
    Quiesce(AsyncId),
    Unquiesce(AsyncId),
    /// Work that we do not do for others; its number.
    OtherRequest(u32),
    /// From a newer client.
    Unknown(u32),
}

/// What a watcher says to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    pub result: i32,
}
denc::envelope_denc!(Response, 1, 1, { result });

const VERSION: u8 = 7;

impl Message {
    fn op(&self) -> u32 {
        match self {
            Self::AcquiredLock(_) => 0,
            Self::ReleasedLock(_) => 1,
            Self::RequestLock { .. } => 2,
            Self::HeaderUpdate => 3,
            Self::AsyncProgress { .. } => 4,
            Self::AsyncComplete { .. } => 5,
            Self::Flatten(_) => 6,
            Self::Resize { .. } => 7,
            Self::SnapCreate { .. } => 8,
            Self::SnapRemove { .. } => 9,
            Self::SnapProtect { .. } => 12,
            Self::SnapUnprotect { .. } => 13,
            Self::Quiesce(_) => 18,
            Self::Unquiesce(_) => 19,
            Self::OtherRequest(op) | Self::Unknown(op) => *op,
        }
    }

    fn fields(&self, w: &mut Writer) {
        match self {
            Self::AcquiredLock(c) | Self::ReleasedLock(c) => w.put(c),
            Self::RequestLock { client, force } => {
                w.put(client);
                w.bool(*force);
            }
            Self::HeaderUpdate | Self::OtherRequest(_) | Self::Unknown(_) => {}
            Self::AsyncProgress { id, offset, total } => {
                w.put(id);
                w.u64(*offset);
                w.u64(*total);
            }
            Self::AsyncComplete { id, result } => {
                w.put(id);
                w.put(result);
            }
            Self::Resize {
                size,
                id,
                allow_shrink,
            } => {
                w.u64(*size);
                w.put(id);
                w.bool(*allow_shrink);
            }
            Self::SnapCreate { name, namespace, id } => {
                w.blob(name);
                w.put(namespace);
                w.put(id);
                w.u64(0);
            }
            Self::SnapRemove { name, namespace, id } => {
                w.blob(name);
                w.put(namespace);
                w.put(id);
            }
            Self::SnapProtect { name, id } | Self::SnapUnprotect { name, id } => {
                w.blob(name);
                w.put(&SnapshotNamespace::User);
                w.put(id);
            }
            Self::Flatten(id) | Self::Quiesce(id) | Self::Unquiesce(id) => w.put(id),
        }
    }

    fn read(op: u32, r: &mut Reader) -> denc::Result<Self> {
        let named = |r: &mut Reader| Ok((r.blob()?, r.get::<SnapshotNamespace>()?, r.get::<AsyncId>()?));
        Ok(match op {
            0 => Self::AcquiredLock(r.get()?),
            1 => Self::ReleasedLock(r.get()?),
            2 => Self::RequestLock {
                client: r.get()?,
                force: r.bool()?,
            },
            3 => Self::HeaderUpdate,
            4 => Self::AsyncProgress {
                id: r.get()?,
                offset: r.u64()?,
                total: r.u64()?,
            },
            5 => Self::AsyncComplete {
                id: r.get()?,
                result: r.i32()?,
            },
            6 => Self::Flatten(r.get()?),
            7 => Self::Resize {
                size: r.u64()?,
                id: r.get()?,
                allow_shrink: r.bool()?,
            },
            8 => {
                let (name, namespace, id) = named(r)?;
                Self::SnapCreate { name, namespace, id }
            }
            9 => {
                let (name, namespace, id) = named(r)?;
                Self::SnapRemove { name, namespace, id }
            }
            12 => {
                let (name, _, id) = named(r)?;
                Self::SnapProtect { name, id }
            }
            13 => {
                let (name, _, id) = named(r)?;
                Self::SnapUnprotect { name, id }
            }
            18 => Self::Quiesce(r.get()?),
            19 => Self::Unquiesce(r.get()?),
            10 | 11 | 14..=17 | 20 => Self::OtherRequest(op),
            other => Self::Unknown(other),
        })
    }
}

impl Encode for Message {
    fn encode(&self, w: &mut Writer) {
        w.envelope(VERSION, 1, |w| {
            w.u32(self.op());
            self.fields(w);
        });
    }
}

impl Decode for Message {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(VERSION, |_, r| {
            let op = r.u32()?;
            Self::read(op, r)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As librbd 16.2.15 sent them.
    #[test]
    fn payloads_of_a_real_client() {
        let client = ClientId {
            global_id: 4591,
            cookie: 140_307_790_417_536,
        };
        for (hex, want) in [
            (
                "07011400000000000000ef1100000000000080ce01f49b7f0000",
                Message::AcquiredLock(client),
            ),
            (
                "07011400000001000000ef1100000000000080ce01f49b7f0000",
                Message::ReleasedLock(client),
            ),
            (
                "070115000000020000000912000000000000e00f0010dd7f000000",
                Message::RequestLock {
                    client: ClientId {
                        global_id: 4617,
                        cookie: 140_587_432_939_488,
                    },
                    force: false,
                },
            ),
            ("07010400000003000000", Message::HeaderUpdate),
        ] {
            let bytes = Bytes::from(hex::decode(hex).unwrap());
            assert_eq!(Message::from_bytes(&bytes).unwrap(), want);
            assert_eq!(want.to_bytes(), bytes);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let id = AsyncId {
            client: ClientId {
                global_id: 1,
                cookie: 2,
            },
            request: 3,
        };
        let namespace = SnapshotNamespace::User;
        let name = Bytes::from_static(b"s");
        for message in [
            Message::AsyncComplete { id, result: -5 },
            Message::AsyncProgress {
                id,
                offset: 4,
                total: 5,
            },
            Message::Resize {
                size: 1 << 40,
                id,
                allow_shrink: true,
            },
            Message::SnapCreate {
                name: name.clone(),
                namespace: namespace.clone(),
                id,
            },
            Message::SnapRemove {
                name: name.clone(),
                namespace,
                id,
            },
            Message::SnapProtect { name, id },
            Message::Quiesce(id),
        ] {
            assert_eq!(Message::from_bytes(&message.to_bytes()).unwrap(), message);
        }
        let answer = Response { result: -30 };
        assert_eq!(Response::from_bytes(&answer.to_bytes()).unwrap(), answer);
    }

    #[test]
    fn a_truncated_message_is_an_error() {
        assert!(Message::from_bytes(&Bytes::from_static(b"\x07\x01\x04\0\0\0\x02\0\0\0")).is_err());
    }
}
