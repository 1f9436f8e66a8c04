//! Why a request is not done. The front gives each its S3 code; what is the cluster's fault is logged there, too.

use types::Errno;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the bucket does not exist")]
    NoSuchBucket,
    #[error("the key does not exist")]
    NoSuchKey,
    #[error("the key has no such version")]
    NoSuchVersion,
    /// The current version is a delete marker, with this id.
    #[error("the key does not exist: its current version is a delete marker")]
    Deleted(String),
    /// And this version is; its id and time.
    #[error("the version is a delete marker")]
    IsMarker(String, u64),
    #[error("the version is locked: by a legal hold, or until its retention ends")]
    Locked,
    #[error("the upload does not exist: it may have been completed or aborted")]
    NoSuchUpload,
    #[error("a bucket of this name exists and is another user's")]
    BucketTaken,
    #[error("a bucket of this name exists and is yours")]
    BucketYours,
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    #[error("there is no such user")]
    NoSuchUser,
    #[error("the user exists")]
    UserExists,
    #[error("the user has buckets: {0}")]
    UserHasBuckets(String),
    #[error("there is no such access key")]
    NoSuchAccessKey,
    #[error("there is no such role, or its owner is no more")]
    NoSuchRole,
    #[error("the role exists")]
    RoleExists,
    #[error("the name is of a role that another user had, and policies of buckets may still mean that one")]
    RoleNameHeld,
    #[error("the role has policies, which have to be removed first")]
    RoleInUse,
    #[error("the role has no policy of this name")]
    NoSuchRolePolicy,
    /// Whose.
    #[error("the quota of the {0} is used up")]
    Quota(&'static str),
    #[error("access denied")]
    AccessDenied,
    #[error("a condition of the request does not hold")]
    Precondition,
    /// Others changed the same thing again and again, or a change of the whole bucket is under way.
    #[error("{0}; try again")]
    Conflict(&'static str),
    /// The same, of what goes on by itself: whoever asks again will be answered.
    #[error("{0}; try again")]
    Busy(&'static str),
    /// The upload took so long that it was taken for dead.
    #[error("the upload was given up after it had not gone on for too long")]
    GivenUp,
    #[error("{0}")]
    Invalid(String),
    /// What the client sent does not fit what it announced.
    #[error("{0}")]
    Digest(&'static str),
    #[error("{0}")]
    TooLarge(&'static str),
    #[error("the request's body ended early: {0}")]
    Body(String),
    #[error("a part is missing or is not the one that was uploaded")]
    InvalidPart,
    #[error("parts are not in ascending order")]
    PartOrder,
    #[error("a part other than the last has less than 5 MiB")]
    PartTooSmall,
    #[error("damaged: {0}")]
    Damaged(String),
    #[error(transparent)]
    Rados(#[from] client::Error),
}

impl Error {
    /// What an operation expected is not so.
    pub(crate) fn is_conflict(&self) -> bool {
        let Self::Rados(e) = self else { return false };
        matches!(
            e.errno(),
            Errno::ECANCELED | Errno::ERANGE | Errno::EOVERFLOW | Errno::EEXIST
        )
    }

    /// An operation that an OSD does not do at once.
    pub(crate) fn is_too_big(&self) -> bool {
        matches!(self, Self::Rados(e) if e.errno() == Errno::E2BIG)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Rados(e) if e.is_not_found())
    }
}

impl From<denc::Error> for Error {
    fn from(e: denc::Error) -> Self {
        Self::Damaged(format!("a record that cannot be read: {e}"))
    }
}

pub type Result<T> = std::result::Result<T, Error>;
