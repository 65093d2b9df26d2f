//! Origins: object stores behind S3's protocol, and a folder of this machine.
//!
//! What is not here: caching, coalescing, grants. Architecture invariant: this is the only crate
//! that knows the AWS SDK, and what leaves it is final: limits, time-outs, retries and the resuming
//! of broken bodies are inside.

mod directory;
mod error;
mod headers;
mod limits;
mod metrics;
mod s3;
mod token;

pub use directory::{DirectoryOrigin, PartEntry, Precondition, PutRequest, UploadId};
pub use error::ConfigError;
pub use limits::OriginLimits;
pub use s3::{
    AccessKey, Addressing, Answer, Dialect, Finding, S3Config, S3Origin, SharedCredentials, Survey,
    check_ca, survey,
};
