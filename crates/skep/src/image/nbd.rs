//! A client of the NBD protocol, as much of it as reading and writing `qemu-nbd`'s default export takes: fixed newstyle
//! handshake, structured replies, `base:allocation`. Blocking, one request at a time.
//!
//! Facts (the protocol's public description, doc/proto.md of NetworkBlockDevice/nbd; all numbers big-endian):
//! - Greeting: `NBDMAGIC`, `IHAVEOPT`, u16 flags (bit 0: fixed newstyle, bit 1: no padding). The client answers u32 flags, the same bits.
//! - Option: `IHAVEOPT`, u32 option, u32 length, data. Answers: u64 0x3e889045565a9, u32 option, u32 type, u32 length, data; the last one
//!   is an ACK (1) or an error (bit 31).
//! - STRUCTURED_REPLY (8): no data. SET_META_CONTEXT (10): export's name, u32 count, names; answered by u32 id and name (type 4). GO (7): export's
//!   name, u16 count of wishes; answered by pieces of information (type 3): u16 kind, of which 0 is u64 size and u16 flags.
//! - Request: u32 0x25609513, u16 flags, u16 command, u64 cookie, u64 offset, u32 length, data of a write.
//! - Simple reply: u32 0x67446698, u32 error, u64 cookie. Structured: u32 0x668e33ef, u16 flags (bit 0: the last), u16 type, u64 cookie, u32
//!   length, payload: data (1) u64 offset and bytes; hole (2) u64 offset, u32 length; block status (5) u32 context and pairs of u32 length and
//!   u32 flags (bit 1: reads as zeros); errors (bit 15) u32 error, u16 length, text.
//!
//! The other end is a program that reads an image of unknown origin: every length that it names is bounded, and too few
//! bytes of a read are an error.

use std::io::{self, Read, Write};

const NBDMAGIC: &[u8; 8] = b"NBDMAGIC";
const IHAVEOPT: &[u8; 8] = b"IHAVEOPT";
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE: u32 = 0x6744_6698;
const STRUCTURED: u32 = 0x668e_33ef;

const OPT_GO: u32 = 7;
const OPT_STRUCTURED_REPLY: u32 = 8;
const OPT_SET_META_CONTEXT: u32 = 10;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_META_CONTEXT: u32 = 4;
const REP_ERROR: u32 = 1 << 31;

const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_DISC: u16 = 2;
const CMD_FLUSH: u16 = 3;
const CMD_BLOCK_STATUS: u16 = 7;

const FLAG_DONE: u16 = 1;
const CHUNK_NONE: u16 = 0;
const CHUNK_DATA: u16 = 1;
const CHUNK_HOLE: u16 = 2;
const CHUNK_STATUS: u16 = 5;
const CHUNK_ERROR: u16 = 1 << 15;

const READ_ONLY: u16 = 1 << 1;
const STATE_ZERO: u32 = 1 << 1;
const ALLOCATION: &[u8] = b"base:allocation";

/// One read's or write's most; every server takes as much.
pub const LENGTH_MAX: usize = 32 << 20;
/// Longer answers to options, and payloads without data, are refused; a block status of QEMU's has up to 1 MiB.
const SMALL_MAX: u32 = 2 << 20;
/// Answers to one option, and parts of one reply.
const PARTS_MAX: usize = 64 << 10;
/// A block status is asked of so many bytes at once.
const STATUS_MAX: u64 = 1 << 30;

/// A stretch and whether it reads as zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    pub length: u64,
    pub zero: bool,
}

#[derive(Debug)]
pub struct Nbd<S> {
    stream: S,
    size: u64,
    read_only: bool,
    /// Of `base:allocation`, if the server has it.
    allocation: Option<u32>,
    cookie: u64,
}

fn bad(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("NBD: {}", what.into()))
}

/// The next bytes of a payload as a number; its length is checked by who reads it.
fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    let part = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    part.map(u32::from_be_bytes).ok_or_else(|| bad("a short answer"))
}

fn u64_at(bytes: &[u8], at: usize) -> io::Result<u64> {
    Ok(u64::from(u32_at(bytes, at)?) << 32 | u64::from(u32_at(bytes, at + 4)?))
}

fn u16_at(bytes: &[u8], at: usize) -> io::Result<u16> {
    let part = bytes.get(at..at + 2).and_then(|b| b.try_into().ok());
    part.map(u16::from_be_bytes).ok_or_else(|| bad("a short answer"))
}

/// What a reply is read into.
enum Answer<'a> {
    Nothing,
    /// Bytes from this offset on, and how many came.
    Data(u64, &'a mut [u8], usize),
    Status(&'a mut Vec<Stretch>),
}

impl<S: Read + Write> Nbd<S> {
    /// The handshake; afterwards the default export is open.
    pub fn open(mut stream: S) -> io::Result<Self> {
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        let flags = u16_at(&greeting, 16)?;
        if &greeting[..8] != NBDMAGIC || &greeting[8..16] != IHAVEOPT || flags & 1 == 0 {
            return Err(bad("the other end does not speak fixed newstyle"));
        }
        stream.write_all(&u32::from(flags & 3).to_be_bytes())?;
        let mut nbd = Self {
            stream,
            size: 0,
            read_only: true,
            allocation: None,
            cookie: 0,
        };
        let structured = nbd.option(OPT_STRUCTURED_REPLY, &[], &mut |_, _| Ok(()))?;
        if structured {
            nbd.ask_allocation()?;
        }
        nbd.go()?;
        Ok(nbd)
    }

    fn ask_allocation(&mut self) -> io::Result<()> {
        let mut data = Vec::new();
        data.extend_from_slice(&0u32.to_be_bytes()); // the default export has no name
        data.extend_from_slice(&1u32.to_be_bytes());
        data.extend_from_slice(&(ALLOCATION.len() as u32).to_be_bytes());
        data.extend_from_slice(ALLOCATION);
        let mut id = None;
        let done = self.option(OPT_SET_META_CONTEXT, &data, &mut |kind, payload| {
            if kind == REP_META_CONTEXT && payload.get(4..) == Some(ALLOCATION) {
                id = Some(u32_at(payload, 0)?);
            }
            Ok(())
        })?;
        self.allocation = id.filter(|_| done);
        Ok(())
    }

    fn go(&mut self) -> io::Result<()> {
        let mut told = None;
        let done = self.option(OPT_GO, &[0; 6], &mut |kind, payload| {
            if kind == REP_INFO && u16_at(payload, 0)? == 0 {
                told = Some((u64_at(payload, 2)?, u16_at(payload, 10)?));
            }
            Ok(())
        })?;
        let (size, flags) = told.filter(|_| done).ok_or_else(|| bad("there is no export"))?;
        self.size = size;
        self.read_only = flags & READ_ONLY != 0;
        Ok(())
    }

    /// False: the server does not have it.
    fn option(
        &mut self,
        option: u32,
        data: &[u8],
        told: &mut dyn FnMut(u32, &[u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        let mut out = IHAVEOPT.to_vec();
        out.extend_from_slice(&option.to_be_bytes());
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(data);
        self.stream.write_all(&out)?;
        for _ in 0..PARTS_MAX {
            let mut head = [0; 20];
            self.stream.read_exact(&mut head)?;
            if u64_at(&head, 0)? != OPTION_REPLY || u32_at(&head, 8)? != option {
                return Err(bad("not an answer to the option"));
            }
            let kind = u32_at(&head, 12)?;
            let payload = self.small(u32_at(&head, 16)?)?;
            match kind {
                REP_ACK => return Ok(true),
                k if k & REP_ERROR != 0 => return Ok(false),
                k => told(k, &payload)?,
            }
        }
        Err(bad("answers to an option without end"))
    }

    fn small(&mut self, length: u32) -> io::Result<Vec<u8>> {
        if length > SMALL_MAX {
            return Err(bad(format!("an answer of {length} bytes")));
        }
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(payload)
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub fn read_at(&mut self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(at, buf.len() as u64)?;
        for (i, part) in buf.chunks_mut(LENGTH_MAX).enumerate() {
            let at = at + (i * LENGTH_MAX) as u64;
            let length = part.len();
            self.send(CMD_READ, at, length as u32, &[])?;
            let mut into = Answer::Data(at, part, 0);
            self.reply(&mut into)?;
            if !matches!(into, Answer::Data(_, _, came) if came == length) {
                return Err(bad("bytes of a read are missing"));
            }
        }
        Ok(())
    }

    pub fn write_at(&mut self, at: u64, data: &[u8]) -> io::Result<()> {
        self.check(at, data.len() as u64)?;
        for (i, part) in data.chunks(LENGTH_MAX).enumerate() {
            let at = at + (i * LENGTH_MAX) as u64;
            self.send(CMD_WRITE, at, part.len() as u32, part)?;
            self.reply(&mut Answer::Nothing)?;
        }
        Ok(())
    }

    /// All that was written is durable.
    pub fn flush(&mut self) -> io::Result<()> {
        self.send(CMD_FLUSH, 0, 0, &[])?;
        self.reply(&mut Answer::Nothing)
    }

    /// Says goodbye; the server closes the image. There is no answer.
    pub fn close(mut self) -> io::Result<()> {
        self.send(CMD_DISC, 0, 0, &[])
    }

    /// What lies from `at` on, as far as the server tells; at least a byte. Without `base:allocation` all are data.
    pub fn status(&mut self, at: u64) -> io::Result<Vec<Stretch>> {
        self.check(at, 1)?;
        let length = (self.size - at).min(STATUS_MAX);
        if self.allocation.is_none() {
            return Ok(vec![Stretch { length, zero: false }]);
        }
        let mut stretches = Vec::new();
        self.send(CMD_BLOCK_STATUS, at, length as u32, &[])?;
        self.reply(&mut Answer::Status(&mut stretches))?;
        match stretches.iter().any(|s| s.length == 0) || stretches.is_empty() {
            true => Err(bad("a block status of nothing")),
            false => Ok(stretches),
        }
    }

    fn check(&self, at: u64, length: u64) -> io::Result<()> {
        match at.checked_add(length) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(bad(format!(
                "{length} bytes at {at} of an export of {} bytes",
                self.size
            ))),
        }
    }

    fn send(&mut self, command: u16, at: u64, length: u32, data: &[u8]) -> io::Result<()> {
        self.cookie += 1;
        let mut head = Vec::with_capacity(28);
        head.extend_from_slice(&REQUEST.to_be_bytes());
        head.extend_from_slice(&0u16.to_be_bytes());
        head.extend_from_slice(&command.to_be_bytes());
        head.extend_from_slice(&self.cookie.to_be_bytes());
        head.extend_from_slice(&at.to_be_bytes());
        head.extend_from_slice(&length.to_be_bytes());
        self.stream.write_all(&head)?;
        self.stream.write_all(data)
    }

    fn reply(&mut self, into: &mut Answer<'_>) -> io::Result<()> {
        let mut told = None;
        for _ in 0..PARTS_MAX {
            let mut head = [0; 16];
            self.stream.read_exact(&mut head)?;
            match u32_at(&head, 0)? {
                SIMPLE => return self.simple(&head, into),
                STRUCTURED => {}
                other => return Err(bad(format!("a reply that begins with {other:#x}"))),
            }
            self.check_cookie(u64_at(&head, 8)?)?;
            let mut length = [0; 4];
            self.stream.read_exact(&mut length)?;
            let (flags, kind) = (u16_at(&head, 4)?, u16_at(&head, 6)?);
            // After an error the rest of the reply still comes.
            if let Some(error) = self.part(kind, u32::from_be_bytes(length), into)? {
                told.get_or_insert(error);
            }
            if flags & FLAG_DONE != 0 {
                return told.map_or(Ok(()), Err);
            }
        }
        Err(bad("a reply without end"))
    }

    fn check_cookie(&self, cookie: u64) -> io::Result<()> {
        match cookie == self.cookie {
            true => Ok(()),
            false => Err(bad("a reply to something else")),
        }
    }

    fn simple(&mut self, head: &[u8], into: &mut Answer<'_>) -> io::Result<()> {
        self.check_cookie(u64_at(head, 8)?)?;
        match (u32_at(head, 4)?, into) {
            (0, Answer::Nothing) => Ok(()),
            (0, Answer::Data(_, buf, came)) => {
                self.stream.read_exact(buf)?;
                *came = buf.len();
                Ok(())
            }
            (0, Answer::Status(_)) => Err(bad("a simple reply to a block status")),
            (error, _) => Err(refused(error, "")),
        }
    }

    /// One part of a structured reply; the server's error, if it tells one.
    fn part(&mut self, kind: u16, length: u32, into: &mut Answer<'_>) -> io::Result<Option<io::Error>> {
        match (kind, into) {
            (CHUNK_NONE, _) if length == 0 => {}
            (CHUNK_DATA, Answer::Data(from, buf, came)) if length > 8 => {
                let mut at = [0; 8];
                self.stream.read_exact(&mut at)?;
                let place = place(*from, buf, u64::from_be_bytes(at), u64::from(length) - 8)?;
                *came += place.len();
                self.stream.read_exact(place)?;
            }
            (CHUNK_HOLE, Answer::Data(from, buf, came)) if length == 12 => {
                let hole = self.small(length)?;
                let place = place(*from, buf, u64_at(&hole, 0)?, u64::from(u32_at(&hole, 8)?))?;
                *came += place.len();
                place.fill(0);
            }
            (CHUNK_STATUS, Answer::Status(stretches)) if length % 8 == 4 => {
                let payload = self.small(length)?;
                if Some(u32_at(&payload, 0)?) != self.allocation {
                    return Err(bad("a block status that was not asked for"));
                }
                for pair in payload[4..].chunks_exact(8) {
                    stretches.push(Stretch {
                        length: u64::from(u32_at(pair, 0)?),
                        zero: u32_at(pair, 4)? & STATE_ZERO != 0,
                    });
                }
            }
            (kind, _) if kind & CHUNK_ERROR != 0 => {
                let payload = self.small(length)?;
                let text = payload.get(6..6 + u16_at(&payload, 4)? as usize).unwrap_or(&[]);
                return Ok(Some(refused(
                    u32_at(&payload, 0)?,
                    &String::from_utf8_lossy(text),
                )));
            }
            (kind, _) => return Err(bad(format!("a reply of type {kind} with {length} bytes"))),
        }
        Ok(None)
    }
}

/// The part of `buf`, which begins at `from`, where `length` bytes at `at` belong.
fn place(from: u64, buf: &mut [u8], at: u64, length: u64) -> io::Result<&mut [u8]> {
    let start = at.checked_sub(from);
    let range =
        start.and_then(|s| Some(usize::try_from(s).ok()?..usize::try_from(s.checked_add(length)?).ok()?));
    range
        .and_then(|r| buf.get_mut(r))
        .ok_or_else(|| bad("bytes that were not asked for"))
}

/// The server's own error; its numbers are Linux's.
fn refused(error: u32, text: &str) -> io::Error {
    let known = io::Error::from_raw_os_error(error as i32);
    match text {
        "" => known,
        text => io::Error::new(known.kind(), format!("{known}: {}", text.escape_debug())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// Says what it was given, and hears everything.
    #[derive(Debug)]
    struct Script {
        says: Cursor<Vec<u8>>,
        heard: Vec<u8>,
    }

    impl Read for Script {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.says.read(buf)
        }
    }

    impl Write for Script {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.heard.extend_from_slice(buf);
            Ok(buf.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn option_reply(option: u32, kind: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = OPTION_REPLY.to_be_bytes().to_vec();
        for n in [option, kind, payload.len() as u32] {
            out.extend_from_slice(&n.to_be_bytes());
        }
        [&out[..], payload].concat()
    }

    fn greeting() -> Vec<u8> {
        [&NBDMAGIC[..], IHAVEOPT, &[0, 3]].concat()
    }

    const SIZE: u64 = 1 << 20;

    /// What a server with everything says before the first request.
    fn handshake() -> Vec<u8> {
        let context = [&7u32.to_be_bytes()[..], ALLOCATION].concat();
        let info = [&[0, 0][..], &SIZE.to_be_bytes(), &[0, 1]].concat();
        [
            greeting(),
            option_reply(OPT_STRUCTURED_REPLY, REP_ACK, &[]),
            option_reply(OPT_SET_META_CONTEXT, REP_META_CONTEXT, &context),
            option_reply(OPT_SET_META_CONTEXT, REP_ACK, &[]),
            option_reply(OPT_GO, REP_INFO, &info),
            option_reply(OPT_GO, REP_ACK, &[]),
        ]
        .concat()
    }

    fn part(cookie: u64, flags: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut out = STRUCTURED.to_be_bytes().to_vec();
        out.extend_from_slice(&flags.to_be_bytes());
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&cookie.to_be_bytes());
        out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
        [&out[..], payload].concat()
    }

    fn simple(cookie: u64, error: u32) -> Vec<u8> {
        let head = [SIMPLE.to_be_bytes(), error.to_be_bytes()].concat();
        [&head[..], &cookie.to_be_bytes()].concat()
    }

    fn data(at: u64, bytes: &[u8]) -> Vec<u8> {
        [&at.to_be_bytes()[..], bytes].concat()
    }

    fn open(says: &[u8]) -> io::Result<Nbd<Script>> {
        Nbd::open(Script {
            says: Cursor::new(says.to_vec()),
            heard: Vec::new(),
        })
    }

    /// Opens a good server that then says this.
    fn after(says: &[Vec<u8>]) -> Nbd<Script> {
        open(&[handshake(), says.concat()].concat()).unwrap()
    }

    #[test]
    fn a_read_in_parts() {
        let hole = [&12u64.to_be_bytes()[..], &4u32.to_be_bytes()].concat();
        let mut nbd = after(&[
            part(1, 0, CHUNK_DATA, &data(8, b"abcd")),
            part(1, FLAG_DONE, CHUNK_HOLE, &hole),
        ]);
        assert_eq!((nbd.size(), nbd.is_read_only()), (SIZE, false));
        let mut buf = [9; 8];
        nbd.read_at(8, &mut buf).unwrap();
        assert_eq!(&buf, b"abcd\0\0\0\0");
    }

    #[test]
    fn a_server_without_structured_replies() {
        let info = [&[0, 0][..], &SIZE.to_be_bytes(), &[0, 3]].concat();
        let says = [
            greeting(),
            option_reply(OPT_STRUCTURED_REPLY, REP_ERROR | 1, &[]),
            option_reply(OPT_GO, REP_INFO, &info),
            option_reply(OPT_GO, REP_ACK, &[]),
            simple(1, 0),
            b"data".to_vec(),
            simple(2, 1),
        ];
        let mut nbd = open(&says.concat()).unwrap();
        assert!(nbd.is_read_only());
        let whole = Stretch {
            length: SIZE - 5,
            zero: false,
        };
        assert_eq!(nbd.status(5).unwrap(), [whole]);
        let mut buf = [0; 4];
        nbd.read_at(0, &mut buf).unwrap();
        assert_eq!(&buf, b"data");
        let refused = nbd.write_at(0, b"x").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn stretches() {
        let mut payload = 7u32.to_be_bytes().to_vec();
        for n in [4096u32, 3, 8192, 0] {
            payload.extend_from_slice(&n.to_be_bytes());
        }
        let mut nbd = after(&[part(1, FLAG_DONE, CHUNK_STATUS, &payload)]);
        let want = [(4096, true), (8192, false)].map(|(length, zero)| Stretch { length, zero });
        assert_eq!(nbd.status(0).unwrap(), want);
    }

    #[test]
    fn requests_as_they_travel() {
        let mut nbd = after(&[simple(1, 0), part(2, FLAG_DONE, CHUNK_NONE, &[])]);
        let before = nbd.stream.heard.len();
        nbd.write_at(512, b"xy").unwrap();
        nbd.flush().unwrap();
        let heard = hex(&nbd.stream.heard[before..]);
        let write = "2560951300000001000000000000000100000000000002000000000278 79".replace(' ', "");
        let flush = "25609513000000030000000000000002000000000000000000000000";
        assert_eq!(heard, write + flush);
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// None of these may be taken for an answer, wait for ever or fill memory.
    #[test]
    fn hostile_answers_to_a_read() {
        let error = [&5u32.to_be_bytes()[..], &[0, 3], b"bad"].concat();
        let mut endless = part(1, 0, CHUNK_DATA, &data(0, b"abcd"));
        endless[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        let huge_hole = [&0u64.to_be_bytes()[..], &u32::MAX.to_be_bytes()].concat();
        for (what, says, told) in [
            ("nothing", vec![], ""),
            (
                "too little",
                part(1, FLAG_DONE, CHUNK_DATA, &data(0, b"abc")),
                "missing",
            ),
            ("no data at all", part(1, FLAG_DONE, CHUNK_NONE, &[]), "missing"),
            (
                "before it",
                part(1, FLAG_DONE, CHUNK_DATA, &data(u64::MAX, b"abcd")),
                "not asked",
            ),
            (
                "behind it",
                part(1, FLAG_DONE, CHUNK_DATA, &data(1, b"abcd")),
                "not asked",
            ),
            (
                "too much",
                part(1, FLAG_DONE, CHUNK_DATA, &data(0, b"abcde")),
                "not asked",
            ),
            ("far too much", endless, "not asked"),
            (
                "a huge hole",
                part(1, FLAG_DONE, CHUNK_HOLE, &huge_hole),
                "not asked",
            ),
            ("a status", part(1, FLAG_DONE, CHUNK_STATUS, &[0; 12]), "type 5"),
            ("another's", part(9, FLAG_DONE, CHUNK_NONE, &[]), "something else"),
            ("another's, simply", simple(9, 0), "something else"),
            ("no reply", b"HTTP/1.1 400 Bad Request".to_vec(), "begins with"),
            ("an error", part(1, FLAG_DONE, CHUNK_ERROR | 1, &error), "bad"),
            (
                "a short error",
                part(1, FLAG_DONE, CHUNK_ERROR | 1, &[0]),
                "short",
            ),
            ("an unknown type", part(1, FLAG_DONE, 99, &[]), "type 99"),
        ] {
            let mut buf = [0; 4];
            let e = after(&[says]).read_at(0, &mut buf).unwrap_err();
            assert!(e.to_string().contains(told), "{what}: {e}");
        }
        let many = part(1, 0, CHUNK_NONE, &[]).repeat(PARTS_MAX + 1);
        let e = after(&[many]).read_at(0, &mut [0; 4]).unwrap_err();
        assert!(e.to_string().contains("without end"), "{e}");
        let mut nbd = after(&[]);
        assert!(nbd.read_at(SIZE - 1, &mut [0; 2]).is_err());
        assert!(nbd.read_at(u64::MAX, &mut [0; 2]).is_err());
    }

    #[test]
    fn hostile_block_status() {
        let of = |context: u32, length: u32| [context.to_be_bytes(), length.to_be_bytes(), [0; 4]].concat();
        for says in [
            part(1, FLAG_DONE, CHUNK_STATUS, &of(7, 0)),
            part(1, FLAG_DONE, CHUNK_STATUS, &of(8, 512)),
            part(1, FLAG_DONE, CHUNK_STATUS, &[0, 0, 0, 7]),
            part(1, FLAG_DONE, CHUNK_STATUS, &[0; 6]),
            part(1, FLAG_DONE, CHUNK_NONE, &[]),
            simple(1, 0),
        ] {
            assert!(after(&[says]).status(0).is_err());
        }
    }

    #[test]
    fn hostile_handshakes() {
        let mut long = option_reply(OPT_STRUCTURED_REPLY, REP_INFO, &[]);
        long[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        let endless = option_reply(OPT_STRUCTURED_REPLY, REP_INFO, &[]).repeat(PARTS_MAX + 1);
        for says in [
            Vec::new(),
            b"SSH-2.0-OpenSSH_9.2 and more".to_vec(),
            [&NBDMAGIC[..], IHAVEOPT, &[0, 2]].concat(),
            [greeting(), option_reply(OPT_GO, REP_ACK, &[])].concat(),
            [greeting(), long].concat(),
            [greeting(), endless].concat(),
            handshake()[..handshake().len() - 1].to_vec(),
        ] {
            assert!(open(&says).is_err());
        }
        let gone = [
            greeting(),
            option_reply(OPT_STRUCTURED_REPLY, REP_ERROR | 1, &[]),
            option_reply(OPT_GO, REP_ERROR | 6, b"no"),
        ];
        assert!(
            open(&gone.concat())
                .unwrap_err()
                .to_string()
                .contains("no export")
        );
    }
}
