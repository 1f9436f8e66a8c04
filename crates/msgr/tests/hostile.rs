//! Peers that mean harm: whatever arrives, the connection ends with an error or waits for more. It never
//! panics, never opens without a proper handshake, and never takes memory for what was only claimed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use auth::{AllowNone, ConMode, Entropy, NoneClient};
use bytes::Bytes;
use msgr::*;
use proptest::prelude::*;
use std::sync::Arc;
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, Utime};

fn entropy() -> Arc<dyn Entropy> {
    Arc::new(|b: &mut [u8]| b.fill(3))
}

fn addr() -> EntityAddr {
    EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), 9)
}

fn server() -> ServerConnection {
    let name = EntityName::osd(0);
    let mut config = ServerConfig::new(name, EntityAddrVec::one(addr()), Arc::new(AllowNone), entropy());
    config.limits = Limits {
        front_max: 1 << 16,
        middle_max: 1 << 10,
        data_max: 1 << 20,
    };
    ServerConnection::new(Arc::new(config), "127.0.0.1:5000".parse().unwrap(), 1)
}

fn client() -> ClientConnection<NoneClient> {
    let auth = NoneClient {
        name: AuthName::new(EntityKind::Client, "admin"),
        global_id: 12,
    };
    let mut config = ClientConfig::new(EntityKind::Osd, addr(), 5, entropy());
    config.modes = vec![ConMode::Crc];
    ClientConnection::new(config, auth)
}

/// What a client says up to and including CLIENT_IDENT, and then two messages.
fn good_session() -> (Vec<u8>, usize) {
    let (mut c, mut s) = (client(), server());
    let mut said = Vec::new();
    loop {
        let out = c.output().take();
        said.extend_from_slice(&out);
        s.feed(&out);
        let opened = s.next(Utime::ZERO).unwrap().is_some();
        c.feed(&s.output().take());
        let ready = c.next(Utime::ZERO).unwrap().is_some();
        if opened && ready {
            break;
        }
    }
    let handshake = said.len();
    for n in [100, 50_000] {
        let m = Message {
            kind: 42,
            front: vec![1; 60].into(),
            data: vec![2; n].into(),
            ..Message::default()
        };
        c.send(m).unwrap();
    }
    said.extend_from_slice(&c.output().take());
    (said, handshake)
}

/// Feeds all and gives the events until an error.
fn run(bytes: &[u8], step: usize) -> (Vec<Event>, Option<Error>) {
    let mut s = server();
    let mut events = Vec::new();
    for part in bytes.chunks(step.max(1)) {
        s.feed(part);
        loop {
            match s.next(Utime::ZERO) {
                Ok(Some(e)) => events.push(e),
                Ok(None) => break,
                Err(e) => return (events, Some(e)),
            }
        }
    }
    (events, None)
}

fn frame(tag: u8, count: u8, lens: [u32; 4], flags: u8) -> Vec<u8> {
    let mut b = vec![tag, count];
    for (len, align) in lens.iter().zip([8u16, 8, 8, 4096]) {
        b.extend_from_slice(&len.to_le_bytes());
        b.extend_from_slice(&align.to_le_bytes());
    }
    b.extend_from_slice(&[flags, 0]);
    let crc = types::checksum::crc32c(0, &b);
    b.extend_from_slice(&crc.to_le_bytes());
    b
}

#[test]
fn the_good_session_works_in_any_pieces() {
    let (bytes, _) = good_session();
    for step in [1, 3, 31, 32, 33, 4096, bytes.len()] {
        let (events, error) = run(&bytes, step);
        assert_eq!((events.len(), error), (3, None), "step {step}");
    }
}

#[test]
fn cut_anywhere_it_waits() {
    let (bytes, handshake) = good_session();
    for n in (0..handshake + 300).chain([bytes.len() - 1]) {
        let (events, error) = run(&bytes[..n], usize::MAX);
        assert_eq!(error, None, "cut at {n}");
        assert!(events.len() < 3);
        assert_eq!(events.is_empty(), n < handshake, "cut at {n}");
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (bytes, handshake) = good_session();
    // Behind the banner every byte of the handshake is under a checksum.
    for n in (26..handshake + 400).chain(bytes.len() - 20..bytes.len()) {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[n] ^= 1 << bit;
            let (events, error) = run(&bad, usize::MAX);
            let high_nibble = error.is_none() && events.len() == 3 && bit >= 4;
            assert!(
                error.is_some() || high_nibble,
                "bit {bit} of byte {n}: {events:?}"
            );
        }
    }
}

#[test]
fn banners() {
    let check = |bytes: &[u8], want: Option<Error>| assert_eq!(run(bytes, 1).1, want, "{bytes:?}");
    check(b"ceph v027", Some(Error::NotV2));
    check(b"x", Some(Error::NotV2));
    check(b"ceph v2\n", None);
    check(b"ceph v2\n\x05\x00", Some(Error::BannerLength(5)));
    check(b"ceph v2\n\xff\xff", Some(Error::BannerLength(65535)));
    let mut wants = b"ceph v2\n\x10\x00".to_vec();
    wants.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    check(&wants, Some(Error::MessengerFeatures(2)));
    // A longer banner of a later release is taken.
    let mut long = b"ceph v2\n\x12\x00".to_vec();
    long.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 7]);
    check(&long, None);
}

#[test]
fn frames_in_the_wrong_place_or_shape() {
    let (bytes, handshake) = good_session();
    let banner = &bytes[..26];
    let hello = &bytes[26..98];
    let check = |prefix: &[&[u8]], f: Vec<u8>, want: &str| {
        let mut all = prefix.concat();
        all.extend_from_slice(&f);
        let (_, error) = run(&all, usize::MAX);
        assert_eq!(error.map(|e| e.to_string()).as_deref(), Some(want));
    };
    let open = &bytes[..handshake];
    check(
        &[banner],
        frame(17, 1, [41, 0, 0, 0], 0),
        "Message while the session is not open",
    );
    check(
        &[banner],
        frame(17, 4, [41, 0, 0, u32::MAX], 0),
        "Message while the session is not open",
    );
    check(
        &[banner],
        frame(1, 1, [u32::MAX, 0, 0, 0], 0),
        "control frame of 4294967295 bytes, limit 16384",
    );
    check(
        &[banner],
        frame(1, 1, [16385, 0, 0, 0], 0),
        "control frame of 16385 bytes, limit 16384",
    );
    check(&[banner], frame(0, 1, [8, 0, 0, 0], 0), "frame of unknown tag 0");
    check(
        &[banner],
        frame(99, 1, [8, 0, 0, 0], 0),
        "frame of unknown tag 99",
    );
    check(&[banner], frame(1, 0, [0; 4], 0), "frame with 0 segments");
    check(&[banner], frame(1, 5, [0; 4], 0), "frame with 5 segments");
    check(&[banner], frame(1, 2, [8, 8, 0, 0], 0), "frame with 2 segments");
    check(
        &[banner],
        frame(1, 1, [8, 0, 0, 0], 1),
        "compressed frame without negotiation",
    );
    check(
        &[banner, hello],
        hello.to_vec(),
        "Hello while waiting for AUTH_REQUEST",
    );
    check(
        &[banner],
        bytes[98..handshake].to_vec(),
        "AuthRequest while waiting for HELLO",
    );
    check(&[open], hello.to_vec(), "Hello while the session is open");
    check(
        &[open],
        frame(17, 4, [41, 0, 0, 0], 0),
        "last counted segment is empty",
    );
    check(
        &[open],
        frame(17, 1, [40, 0, 0, 0], 0),
        "message header of 40 bytes",
    );
    check(
        &[open],
        frame(17, 2, [41, u32::MAX, 0, 0], 0),
        "front of 4294967295 bytes, limit 65536",
    );
    check(
        &[open],
        frame(17, 3, [41, 0, 2000, 0], 0),
        "middle of 2000 bytes, limit 1024",
    );
    check(
        &[open],
        frame(17, 4, [41, 0, 0, 1 << 21], 0),
        "data of 2097152 bytes, limit 1048576",
    );
    let mut wrong = frame(17, 1, [41, 0, 0, 0], 0);
    wrong[31] ^= 1;
    check(&[open], wrong, "preamble checksum is wrong");
}

#[test]
fn a_repeated_message_is_dropped_and_keepalive_answered() {
    let (bytes, handshake) = good_session();
    let first = 32 + 41 + 4 + 60 + 100 + 13;
    let mut s = server();
    s.feed(&bytes[..handshake + first]);
    while s.next(Utime::ZERO).unwrap().is_some() {}
    s.output().take();
    s.feed(&bytes[handshake..handshake + first]);
    assert_eq!(s.next(Utime::ZERO), Ok(None));
    let mut keepalive = frame(18, 1, [8, 0, 0, 0], 0);
    let stamp = [1, 2, 3, 4, 5, 6, 7, 8];
    keepalive.extend_from_slice(&stamp);
    keepalive.extend_from_slice(&types::checksum::crc32c(u32::MAX, &stamp).to_le_bytes());
    s.feed(&keepalive);
    assert_eq!(s.next(Utime::ZERO), Ok(None));
    let answer = s.output().take();
    assert_eq!((answer[0], &answer[32..40]), (19, &stamp[..]));
    // Too short a stamp is a malformed frame.
    let mut short = frame(18, 1, [4, 0, 0, 0], 0);
    short.extend_from_slice(&stamp[..4]);
    short.extend_from_slice(&types::checksum::crc32c(u32::MAX, &stamp[..4]).to_le_bytes());
    s.feed(&short);
    assert!(s.next(Utime::ZERO).is_err());
}

#[test]
fn authentication_attempts_are_counted() {
    let (bytes, _) = good_session();
    let mut request = frame(2, 1, [12, 0, 0, 0], 0);
    let payload = [7u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    request.extend_from_slice(&payload);
    request.extend_from_slice(&types::checksum::crc32c(u32::MAX, &payload).to_le_bytes());
    let mut all = bytes[..98].to_vec();
    for _ in 0..100 {
        all.extend_from_slice(&request);
    }
    let (events, error) = run(&all, usize::MAX);
    assert_eq!((events.len(), error), (8, Some(Error::TooManyAttempts(8))));
}

#[test]
fn memory_follows_what_arrived_not_what_was_claimed() {
    let (bytes, handshake) = good_session();
    let mut s = server();
    // Before anything, and while nothing large is under way, the buffer is small.
    assert!(s.read_target().0.capacity() <= 4096);
    s.feed(&bytes[..handshake]);
    while s.next(Utime::ZERO).unwrap().is_some() {}
    assert_eq!(s.large_body(), None);
    let (buf, room) = s.read_target();
    assert!(buf.capacity() <= 64 << 10 && room >= 8 << 10);
    // A large message: exactly its own size.
    s.feed(&frame(17, 4, [41, 0, 0, 1 << 20], 0));
    assert_eq!(s.next(Utime::ZERO), Ok(None));
    let need = 41 + 4 + (1 << 20) + 13;
    assert_eq!(s.large_body(), Some((0, need)));
    let (buf, room) = s.read_target();
    assert_eq!((buf.len(), room), (0, need));
    assert!(buf.capacity() < need + 4096);
}

#[test]
fn large_data_is_not_copied() {
    let (bytes, handshake) = good_session();
    let mut s = server();
    s.feed(&bytes[..handshake]);
    while s.next(Utime::ZERO).unwrap().is_some() {}
    let data = Bytes::from(vec![5u8; 300_000]);
    let mut c = {
        let (mut c, mut s2) = (client(), server());
        while c
            .send(Message {
                data: data.clone(),
                ..Message::default()
            })
            .is_err()
        {
            s2.feed(&c.output().take());
            while s2.next(Utime::ZERO).unwrap().is_some() {}
            c.feed(&s2.output().take());
            c.next(Utime::ZERO).unwrap();
        }
        c
    };
    // On the way out the data is the very same buffer.
    let mut slices = [std::io::IoSlice::new(&[]); 8];
    let n = c.output().slices(&mut slices);
    assert!(slices[..n].iter().any(|s| s.as_ptr() == data.as_ptr()));
    // On the way in it lies in the buffer that was read into.
    let wire = c.output().take();
    let mut at = 0;
    let mut big = (std::ptr::null(), 0);
    let m = loop {
        let (buf, room) = s.read_target();
        let n = room.min(wire.len() - at);
        buf.extend_from_slice(&wire[at..at + n]);
        if buf.len() > 200_000 {
            big = (buf.as_ptr(), buf.len());
        }
        at += n;
        if let Some(Event::Message(m)) = s.next(Utime::ZERO).unwrap() {
            break m;
        }
    };
    assert_eq!(m.data, data);
    let offset = m.data.as_ptr() as usize - big.0 as usize;
    assert!(offset < big.1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn mutated_sessions_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..6),
        step in 1usize..5000,
    ) {
        let (mut bytes, _) = good_session();
        for (at, value, how) in edits {
            let i = at.index(bytes.len());
            match how {
                0 => bytes[i] = value,
                1 => bytes.insert(i, value),
                2 => { bytes.remove(i); }
                _ => bytes.truncate(i.max(1)),
            }
            if bytes.is_empty() { break; }
        }
        run(&bytes, step);
    }

    #[test]
    fn preambles_with_good_checksums_never_panic(
        tag in 0u8..25, count in 0u8..6, lens in any::<[u32; 4]>(), small in any::<[u8; 4]>(),
        body in prop::collection::vec(any::<u8>(), 0..2000), open in any::<bool>(),
    ) {
        let (bytes, handshake) = good_session();
        for lens in [lens, small.map(u32::from)] {
            let mut all = bytes[..if open { handshake } else { 98 }].to_vec();
            all.extend_from_slice(&frame(tag, count, lens, 0));
            all.extend_from_slice(&body);
            run(&all, usize::MAX);
        }
    }
}

/// Requests that were refused again and again stayed in the transcript: 256 KiB before anybody was known.
#[test]
fn what_is_said_before_authentication_is_bounded() {
    struct Refusing;
    impl auth::Authenticator for Refusing {
        fn methods(&self) -> &[auth::AuthMethod] {
            &[auth::AuthMethod::None]
        }
        fn modes(&self) -> &[ConMode] {
            &[ConMode::Crc]
        }
        fn start(
            &self,
            _: auth::AuthMethod,
            _: ConMode,
            _: &Bytes,
            _: &auth::Context,
        ) -> Result<auth::Step, auth::AuthError> {
            Err(auth::AuthError::access("nobody"))
        }
        fn resume(
            &self,
            _: auth::Pending,
            _: &Bytes,
            _: &auth::Context,
        ) -> Result<auth::Step, auth::AuthError> {
            Err(auth::AuthError::access("nobody"))
        }
    }
    let name = EntityName::osd(0);
    let config = ServerConfig::new(name, EntityAddrVec::one(addr()), Arc::new(Refusing), entropy());
    let mut s = ServerConnection::new(Arc::new(config), "127.0.0.1:5000".parse().unwrap(), 1);
    let auth = NoneClient {
        name: AuthName::new(EntityKind::Client, "admin"),
        global_id: 12,
    };
    let mut config = ClientConfig::new(EntityKind::Osd, addr(), 5, entropy());
    config.modes = vec![ConMode::Crc; 3000];
    let mut c = ClientConnection::new(config, auth);
    let mut request = Bytes::new();
    while request.len() < 12_000 {
        s.feed(&c.output().take());
        s.next(Utime::ZERO).unwrap();
        c.feed(&s.output().take());
        c.next(Utime::ZERO).unwrap();
        request = c.output().take();
    }
    // Behind its HELLO.
    let hello = 32 + u32::from_le_bytes(request[2..6].try_into().unwrap()) as usize + 4;
    s.feed(&request.split_to(hello));
    assert_eq!(s.next(Utime::ZERO), Ok(None));
    let mut taken = 0;
    let end = loop {
        s.feed(&request);
        match s.next(Utime::ZERO) {
            Ok(Some(Event::Denied(_))) => taken += request.len(),
            other => break other,
        }
    };
    assert!(
        matches!(
            end,
            Err(Error::TooLong {
                what: "handshake",
                ..
            })
        ),
        "{end:?}"
    );
    assert!(taken <= TRANSCRIPT_MAX && TRANSCRIPT_MAX <= 64 << 10, "{taken}");
}

/// A frame that announces 1 MiB and more takes its memory when the bytes come.
#[test]
fn an_announced_body_takes_no_memory() {
    let (bytes, handshake) = good_session();
    let mut s = server();
    s.feed(&bytes[..handshake]);
    while s.next(Utime::ZERO).unwrap().is_some() {}
    let (mut c, mut t) = (client(), server());
    while !t.is_open() {
        t.feed(&c.output().take());
        t.next(Utime::ZERO).unwrap();
        c.feed(&t.output().take());
        c.next(Utime::ZERO).unwrap();
    }
    let big = Message {
        kind: 42,
        data: vec![2; 1 << 20].into(),
        ..Message::default()
    };
    c.send(big).unwrap();
    s.feed(&c.output().take()[..200]);
    assert_eq!(s.next(Utime::ZERO), Ok(None));
    let (received, need) = s.large_body().unwrap();
    assert!(received < 200 && need > 1 << 20, "{received} of {need}");
    assert!(s.read_target().1 <= BODY_SLICE);
}
