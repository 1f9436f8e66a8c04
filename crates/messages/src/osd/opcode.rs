//! Operation numbers: one table of number and name; class and kind follow from the number's bits
//! (docs/protocol/ceph/04-osd.md, section 6).

use std::fmt;

/// How an operation counts when a message is classified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpClass {
    Read,
    Write,
    /// Writes and needs the permission to read, too.
    ReadWrite,
    /// Old cache-tier operations.
    Cache,
    /// Neither mode bit: code 0, or nonsense.
    None,
}

/// The number of an operation; unknown numbers are values like any other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpCode(pub u16);

const MODE_READ: u16 = 0x1000;
const MODE_WRITE: u16 = 0x2000;
const MODE_CACHE: u16 = 0x8000;
const TYPE_MASK: u16 = 0x0f00;
const TYPE_PG: u16 = 0x0500;

impl OpCode {
    pub fn class(self) -> OpClass {
        match (self.0 & MODE_READ != 0, self.0 & MODE_WRITE != 0) {
            (true, true) => OpClass::ReadWrite,
            (true, false) => OpClass::Read,
            (false, true) => OpClass::Write,
            (false, false) if self.0 & MODE_CACHE != 0 => OpClass::Cache,
            _ => OpClass::None,
        }
    }

    /// An operation on a PG, not on an object.
    pub fn is_pg(self) -> bool {
        self.0 & TYPE_MASK == TYPE_PG
    }
}

impl fmt::Display for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(n) => f.write_str(n),
            None => write!(f, "op {:#06x}", self.0),
        }
    }
}
impl fmt::Debug for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! opcodes {
    ($($name:ident = $num:expr;)*) => {
        /// The known operation numbers.
        pub mod code {
            use super::OpCode;
            $(pub const $name: OpCode = OpCode($num);)*
        }
        impl OpCode {
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($num => Some(stringify!($name)),)* _ => None }
            }
            /// Every known operation.
            pub const ALL: &'static [OpCode] = &[$(OpCode($num)),*];
        }
    };
}

opcodes! {
    READ = 0x1201;
    STAT = 0x1202;
    MAPEXT = 0x1203;
    MASKTRUNC = 0x1204;
    SPARSE_READ = 0x1205;
    NOTIFY = 0x1206;
    NOTIFY_ACK = 0x1207;
    ASSERT_VER = 0x1208;
    LIST_WATCHERS = 0x1209;
    LIST_SNAPS = 0x120a;
    SYNC_READ = 0x120b;
    TMAPGET = 0x120c;
    OMAPGETKEYS = 0x1211;
    OMAPGETVALS = 0x1212;
    OMAPGETHEADER = 0x1213;
    OMAPGETVALSBYKEYS = 0x1214;
    OMAP_CMP = 0x1219;
    ISDIRTY = 0x121d;
    COPY_GET = 0x121e;
    CHECKSUM = 0x121f;
    CMPEXT = 0x1220;
    WRITE = 0x2201;
    WRITEFULL = 0x2202;
    TRUNCATE = 0x2203;
    ZERO = 0x2204;
    DELETE = 0x2205;
    APPEND = 0x2206;
    STARTSYNC = 0x2207;
    SETTRUNC = 0x2208;
    TRIMTRUNC = 0x2209;
    TMAPPUT = 0x220b;
    CREATE = 0x220d;
    ROLLBACK = 0x220e;
    WATCH = 0x220f;
    OMAPSETVALS = 0x2215;
    OMAPSETHEADER = 0x2216;
    OMAPCLEAR = 0x2217;
    OMAPRMKEYS = 0x2218;
    COPY_FROM = 0x221a;
    UNDIRTY = 0x221c;
    SETALLOCHINT = 0x2223;
    CACHE_PIN = 0x2224;
    CACHE_UNPIN = 0x2225;
    WRITESAME = 0x2226;
    SET_REDIRECT = 0x2227;
    TIER_PROMOTE = 0x2229;
    UNSET_MANIFEST = 0x222a;
    OMAPRMKEYRANGE = 0x222c;
    COPY_FROM2 = 0x222d;
    TMAPUP = 0x320a;
    TMAP2OMAP = 0x3222;
    CACHE_FLUSH = 0x821f;
    CACHE_EVICT = 0x8220;
    CACHE_TRY_FLUSH = 0x8221;
    SET_CHUNK = 0x8228;
    TIER_FLUSH = 0x822b;
    TIER_EVICT = 0x822c;
    GETXATTR = 0x1301;
    GETXATTRS = 0x1302;
    CMPXATTR = 0x1303;
    SETXATTR = 0x2301;
    SETXATTRS = 0x2302;
    RESETXATTRS = 0x2303;
    RMXATTR = 0x2304;
    CALL = 0x1401;
    PGLS = 0x1501;
    PGLS_FILTER = 0x1502;
    PG_HITSET_LS = 0x1503;
    PG_HITSET_GET = 0x1504;
    PGNLS = 0x1505;
    PGNLS_FILTER = 0x1506;
    SCRUBLS = 0x1507;
}

/// Flags of one operation; the others that exist are hints.
pub mod op_flag {
    pub const EXCL: u32 = 0x1;
    pub const FAILOK: u32 = 0x2;
}
