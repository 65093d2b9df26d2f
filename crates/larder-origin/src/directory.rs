//! A folder of this machine as an origin: its sub-folders are buckets, their files objects.
//!
//! What is not here: versions, grants, any protection against somebody who may write in the folder
//! by other means, but for links, which never lead out of their bucket.

mod checksum;
mod folder;
mod key;
mod list;
mod open;
mod put;
mod raw;
mod read;
mod sidecar;
mod sweep;
mod temp;
mod upload;
mod walk;

pub use put::{Precondition, PutRequest};
pub use upload::{PartEntry, UploadId};

use crate::metrics::{Operation, Requests};
use crate::{ConfigError, error};
use folder::Folders;
use http::HeaderMap;
use larder_model::{
    BucketEntry, BucketName, FetchRequest, Fetched, HeadRequest, ListPage, ListRequest, ObjectMeta,
    Origin, OriginError, OriginName, RawAnswer, RawRequest,
};
use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use sweep::Sweeper;

/// A folder whose sub-folders are buckets.
///
/// # Keys
///
/// A key is the path of a file below its bucket's folder, and never anything else. A folder cannot
/// hold every key that S3 can; `KEYS.md` in this crate is the full rule, in short:
///
/// - These keys cannot exist: with an empty part (`a//b`, `/a`, `a/`), with a part `.` or `..`, with
///   a NUL byte, with a part of more than 255 bytes, below `.larder/`. To read one is `NoSuchKey`,
///   to write one is refused with 400 `InvalidArgument`, to delete one succeeds.
/// - A key that is the folder of another (`a` and `a/b`) cannot exist beside it: whichever comes
///   second is refused with 400.
/// - On disk, names that are not UTF-8, keys of more than 1,024 bytes, devices, pipes and sockets
///   are invisible. So is a link, unless it is a key's last part and leads to a regular file in the
///   same bucket: then that file is the object.
/// - Folders are not objects. An empty one is not listed, and goes when its last object is deleted.
///
/// # Versions
///
/// The ETag is a digest of inode, size, modification and change time. Bytes written through a
/// memory map show in these times only when the kernel writes them back.
#[derive(Clone, Debug)]
pub struct DirectoryOrigin(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: OriginName,
    /// Canonical: real paths of open files are compared with it.
    root: PathBuf,
    folders: Folders,
    requests: Requests,
    /// Held while a file becomes visible or goes, so that conditions, folders made and folders
    /// removed do not cross. Never across an await.
    changing: Mutex<()>,
    /// Sweeps as long as the origin is there.
    _sweeper: Option<Sweeper>,
}

impl DirectoryOrigin {
    /// Opens the folder, which must exist, and removes what killed processes and forgotten uploads
    /// left there a week ago or earlier; in a runtime, again every day.
    pub fn open(
        name: OriginName,
        root: impl AsRef<Path>,
        registry: &prometheus::Registry,
    ) -> Result<Self, ConfigError> {
        let refused = |reason| ConfigError::Folder {
            origin: name.clone(),
            path: root.as_ref().to_path_buf(),
            reason,
        };
        let path = fs::canonicalize(root.as_ref()).map_err(refused)?;
        // The root is read, so that a file or a folder without permission is found out now.
        sweep::sweep(&path).map_err(refused)?;
        let requests = Requests::register(&name, registry)?;
        Ok(Self(Arc::new_cyclic(|inner| Inner {
            name,
            root: path,
            folders: Folders::default(),
            requests,
            changing: Mutex::new(()),
            _sweeper: Sweeper::start(Weak::clone(inner)),
        })))
    }

    /// The bucket's folder.
    async fn bucket(&self, bucket: &BucketName) -> Result<PathBuf, OriginError> {
        let (root, name) = (self.0.root.clone(), bucket.clone());
        let found = move || read::bucket_folder(&root, name.as_str());
        let found = blocking(found).await;
        found
            .map_err(|error| failed(&self.0.name, "look for bucket", bucket, &error))?
            .ok_or_else(no_such_bucket)
    }

    fn count<T>(&self, operation: Operation, result: &Result<T, OriginError>) {
        let status = match result {
            Ok(_) => Some(200),
            Err(OriginError::NotFound(reply) | OriginError::Refused(reply)) => Some(reply.status),
            Err(OriginError::VersionChanged) => Some(412),
            Err(OriginError::RangeNotSatisfiable { .. }) => Some(416),
            Err(OriginError::Busy { .. }) => Some(503),
            Err(OriginError::Unreachable { .. } | OriginError::BodyBroken) => None,
        };
        self.0.requests.count(operation, status);
    }

    async fn head_object(&self, request: HeadRequest) -> Result<ObjectMeta, OriginError> {
        let bucket = self.bucket(&request.name.bucket).await?;
        read::check_part(request.part_number)?;
        let opened = read::open(&self.0.name, &bucket, &request.name).await?;
        Ok(read::meta(&request.name, &opened, request.checksums))
    }

    async fn fetch_object(&self, request: FetchRequest) -> Result<Fetched, OriginError> {
        let bucket = self.bucket(&request.name.bucket).await?;
        read::fetch(&self.0.name, &bucket, request).await
    }

    async fn list_objects(&self, request: ListRequest) -> Result<ListPage, OriginError> {
        let bucket = self.bucket(&request.bucket).await?;
        let after = list::after(&request)?;
        let (inner, name) = (Arc::clone(&self.0), request.bucket.clone());
        let page = move || list::page(&bucket, &inner.folders, &request, &after);
        blocking(page).await.map_err(|error| failed(&self.0.name, "list", &name, &error))
    }

    async fn all_buckets(&self) -> Result<Vec<BucketEntry>, OriginError> {
        let root = self.0.root.clone();
        let buckets = move || -> io::Result<Vec<BucketEntry>> {
            let mut buckets = Vec::new();
            for entry in folder::entries(&root)? {
                let entry = entry?;
                if let (true, Ok(name)) = (entry.is_folder(), BucketName::new(entry.bare_name())) {
                    let created = read::created(&root.join(entry.bare_name()))?;
                    buckets.push(BucketEntry { name, created });
                }
            }
            buckets.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(buckets)
        };
        blocking(buckets).await.map_err(|error| failed(&self.0.name, "list", &"the root", &error))
    }
}

#[async_trait::async_trait]
impl Origin for DirectoryOrigin {
    fn name(&self) -> &OriginName {
        &self.0.name
    }

    async fn head(&self, request: HeadRequest) -> Result<ObjectMeta, OriginError> {
        let result = self.head_object(request).await;
        self.count(Operation::Head, &result);
        result
    }

    async fn fetch(&self, request: FetchRequest) -> Result<Fetched, OriginError> {
        let result = self.fetch_object(request).await;
        self.count(Operation::Get, &result);
        result
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, OriginError> {
        let result = self.list_objects(request).await;
        self.count(Operation::List, &result);
        result
    }

    async fn list_buckets(&self) -> Result<Vec<BucketEntry>, OriginError> {
        let result = self.all_buckets().await;
        self.count(Operation::ListBuckets, &result);
        result
    }

    async fn head_bucket(&self, bucket: &BucketName) -> Result<HeaderMap, OriginError> {
        let result = self.bucket(bucket).await.map(|_| HeaderMap::new());
        self.count(Operation::HeadBucket, &result);
        result
    }

    async fn raw(&self, request: RawRequest) -> Result<RawAnswer, OriginError> {
        self.answer(request).await
    }

    /// A folder is in no region: the default one.
    async fn bucket_location(&self, bucket: &BucketName) -> Result<String, OriginError> {
        let result = self.bucket(bucket).await.map(|_| String::new());
        self.count(Operation::BucketLocation, &result);
        result
    }
}

/// File I/O, off the runtime's own threads.
async fn blocking<T, F>(work: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    // The error of a join is a panic in `work`, or the end of the runtime.
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// An I/O error as the port tells it.
fn failed(origin: &OriginName, what: &str, name: &dyn Display, error: &io::Error) -> OriginError {
    if error.kind() == ErrorKind::PermissionDenied {
        let message = format!("Cannot {what} {name}: the folder's permissions do not allow it.");
        return OriginError::Refused(error::reply(403, "AccessDenied", message));
    }
    let reason = format!("cannot {what} {name}: {error}");
    OriginError::Unreachable { origin: origin.clone(), reason }
}

/// An answer with an error of S3's.
fn refused(status: u16, code: &str, message: impl Into<String>) -> OriginError {
    let reply = error::reply(status, code, message);
    if status == 404 { OriginError::NotFound(reply) } else { OriginError::Refused(reply) }
}

fn no_such_bucket() -> OriginError {
    refused(404, "NoSuchBucket", "The specified bucket does not exist")
}
