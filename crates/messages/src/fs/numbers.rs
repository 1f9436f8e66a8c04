//! Numbers of the protocol (docs/protocol/files.md, section 1).

macro_rules! numbers {
    ($(#[$doc:meta])* $module:ident: $t:ty { $($name:ident = $v:expr,)* }) => {
        $(#[$doc])*
        pub mod $module { $( pub const $name: $t = $v; )* }
    };
}

numbers! {
    /// Operations of requests. Bit 0x1000: it changes something.
    op: u32 {
        LOOKUP = 0x100,
        GETATTR = 0x101,
        LOOKUPHASH = 0x102,
        LOOKUPPARENT = 0x103,
        LOOKUPINO = 0x104,
        LOOKUPNAME = 0x105,
        GETVXATTR = 0x106,
        DUMMY = 0x107,
        GETFILELOCK = 0x110,
        SETXATTR = 0x1105,
        RMXATTR = 0x1106,
        SETLAYOUT = 0x1107,
        SETATTR = 0x1108,
        SETFILELOCK = 0x1109,
        SETDIRLAYOUT = 0x110a,
        MKNOD = 0x1201,
        LINK = 0x1202,
        UNLINK = 0x1203,
        RENAME = 0x1204,
        MKDIR = 0x1220,
        RMDIR = 0x1221,
        SYMLINK = 0x1222,
        CREATE = 0x1301,
        OPEN = 0x302,
        READDIR = 0x305,
        LOOKUPSNAP = 0x400,
        LSSNAP = 0x402,
        MKSNAP = 0x1400,
        RMSNAP = 0x1401,
        RENAMESNAP = 0x1403,
        READDIR_SNAPDIFF = 0x1404,
    }
}

numbers! {
    session_op: u32 {
        REQUEST_OPEN = 0,
        OPEN = 1,
        REQUEST_CLOSE = 2,
        CLOSE = 3,
        REQUEST_RENEWCAPS = 4,
        RENEWCAPS = 5,
        STALE = 6,
        RECALL_STATE = 7,
        FLUSHMSG = 8,
        FLUSHMSG_ACK = 9,
        FORCE_RO = 10,
        REJECT = 11,
        REQUEST_FLUSH_MDLOG = 12,
    }
}

numbers! {
    /// Bits of capabilities, of masks of requests, and of what is dirty.
    cap: u32 {
        PIN = 1,
        AS = 4,
        AX = 8,
        LS = 0x10,
        LX = 0x20,
        XS = 0x40,
        XX = 0x80,
        FS = 0x100,
        FX = 0x200,
        FC = 0x400,
        FR = 0x800,
        FW = 0x1000,
        FB = 0x2000,
        FA = 0x4000,
        FL = 0x8000,
        ALL_F = 0xff00,
        EXCL = 0x2a8,
    }
}

numbers! {
    cap_op: u32 {
        GRANT = 0,
        REVOKE = 1,
        TRUNC = 2,
        EXPORT = 3,
        IMPORT = 4,
        UPDATE = 5,
        DROP = 6,
        FLUSH = 7,
        FLUSH_ACK = 8,
        FLUSHSNAP = 9,
        FLUSHSNAP_ACK = 10,
        RELEASE = 11,
        RENEW = 12,
    }
}

numbers! {
    /// Of OPEN and CREATE: the same on every processor.
    open_flag: u32 {
        WRONLY = 0o1,
        RDWR = 0o2,
        ACCMODE = 0o3,
        CREAT = 0o100,
        EXCL = 0o200,
        TRUNC = 0o1000,
        LAZY = 0o20000,
        DIRECTORY = 0o200000,
        NOFOLLOW = 0o400000,
    }
}

numbers! {
    /// What SETATTR sets.
    setattr: u32 {
        MODE = 1,
        UID = 2,
        GID = 4,
        MTIME = 8,
        ATIME = 0x10,
        SIZE = 0x20,
        CTIME = 0x40,
        MTIME_NOW = 0x80,
        ATIME_NOW = 0x100,
        BTIME = 0x200,
        KILL_SGUID = 0x400,
        FSCRYPT_AUTH = 0x800,
        FSCRYPT_FILE = 0x1000,
        KILL_SUID = 0x2000,
        KILL_SGID = 0x4000,
    }
}

numbers! {
    xattr_flag: u32 {
        CREATE = 1,
        REPLACE = 2,
        REMOVE2 = 1 << 30,
        REMOVE = 1 << 31,
    }
}

numbers! {
    /// Of a page of names.
    readdir_flag: u16 {
        FRAG_END = 1,
        FRAG_COMPLETE = 0x100,
        HASH_ORDER = 0x200,
        OFFSET_HASH = 0x400,
    }
}

numbers! {
    /// Rules and types of file locks.
    lock: u8 {
        FCNTL = 1,
        FLOCK = 2,
        FCNTL_INTR = 3,
        FLOCK_INTR = 4,
        SHARED = 1,
        EXCL = 2,
        UNLOCK = 4,
    }
}
