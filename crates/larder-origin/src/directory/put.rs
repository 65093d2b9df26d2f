//! Writes: PUT and DELETE of one object.
//!
//! Invariant: an object becomes visible whole, by one rename, or not at all; with its headers.

use super::key::{self, PRIVATE, Stamp};
use super::open::{absent, visible};
use super::sidecar::{self, StoredHeaders};
use super::temp::{NotReceived, Received, Temp, receive};
use super::walk::holds_object;
use super::{DirectoryOrigin, blocking, failed};
use crate::error;
use crate::metrics::Operation;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::HeaderMap;
use larder_model::{BucketName, ETag, ObjectKey, OriginError};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};

/// What must hold of the current object for a write to replace it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    #[default]
    None,
    /// There must be none: If-None-Match: *.
    Absent,
    /// It must have this tag: If-Match.
    Matches(ETag),
}

/// A PUT without its body.
#[derive(Clone, Debug)]
pub struct PutRequest {
    /// The bucket, which must exist.
    pub bucket: BucketName,
    /// The key; see [`DirectoryOrigin`] for those that cannot be.
    pub key: ObjectKey,
    /// The request's headers; content headers and `x-amz-meta-*` are stored, others are ignored.
    pub headers: HeaderMap,
    /// How long the body must be.
    pub length: Option<u64>,
    /// The body's MD5, from Content-MD5.
    pub md5: Option<[u8; 16]>,
    /// What must hold of the current object. Checked when the body is complete, under the same lock
    /// as the rename; other processes that write in the folder are not held off.
    pub precondition: Precondition,
}

/// Why a file did not become visible.
pub(super) enum NotCommitted {
    Refused(OriginError),
    Disk(io::Error),
}

impl From<io::Error> for NotCommitted {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

impl DirectoryOrigin {
    /// Writes an object and tells its tag.
    ///
    /// Dropping the future before the body is complete leaves nothing; after that, the object may
    /// or may not become visible, as when a connection breaks before the answer.
    pub async fn put(
        &self,
        request: PutRequest,
        body: BoxStream<'_, io::Result<Bytes>>,
    ) -> Result<ETag, OriginError> {
        let result = self.put_object(request, body).await;
        self.count(Operation::Put, &result);
        result
    }

    /// Removes an object, and the folders that it leaves empty. An object that is not there is
    /// removed already.
    pub async fn delete(&self, bucket: &BucketName, key: &ObjectKey) -> Result<(), OriginError> {
        let result = self.delete_object(bucket, key).await;
        self.count(Operation::Delete, &result);
        result
    }

    async fn put_object(
        &self,
        request: PutRequest,
        body: BoxStream<'_, io::Result<Bytes>>,
    ) -> Result<ETag, OriginError> {
        let bucket = self.bucket(&request.bucket).await?;
        key::path(&bucket, request.key.as_str()).map_err(|rule| refuse_key(&request.key, rule))?;
        let received = self.receive(&bucket, &request.key, body).await?;
        check_body(&received, request.length, request.md5)?;
        let headers = StoredHeaders::of(&request.headers);
        self.commit(bucket, request.key, received.temp, headers, request.precondition).await
    }

    pub(super) async fn receive(
        &self,
        bucket: &Path,
        key: &ObjectKey,
        body: BoxStream<'_, io::Result<Bytes>>,
    ) -> Result<Received, OriginError> {
        receive(bucket, body).await.map_err(|error| match error {
            NotReceived::Disk(error) => failed(&self.0.name, "write", key, &error),
            NotReceived::Body(error) => {
                let message = format!("The request body ended early: {error}");
                OriginError::Refused(error::reply(400, "IncompleteBody", message))
            }
        })
    }

    /// Makes a synced temporary file the object of `key`.
    pub(super) async fn commit(
        &self,
        bucket: std::path::PathBuf,
        key: ObjectKey,
        temp: Temp,
        headers: StoredHeaders,
        precondition: Precondition,
    ) -> Result<ETag, OriginError> {
        let inner = Arc::clone(&self.0);
        let name = key.clone();
        let commit = move || {
            let _changing = inner.changing.lock().unwrap_or_else(PoisonError::into_inner);
            match commit(&bucket, &key, temp, &headers, &precondition) {
                Ok(etag) => Ok(Ok(etag)),
                Err(NotCommitted::Refused(error)) => Ok(Err(error)),
                Err(NotCommitted::Disk(error)) => Err(error),
            }
        };
        blocking(commit).await.map_err(|error| failed(&self.0.name, "write", &name, &error))?
    }

    async fn delete_object(&self, bucket: &BucketName, key: &ObjectKey) -> Result<(), OriginError> {
        let folder = self.bucket(bucket).await?;
        let (inner, name) = (Arc::clone(&self.0), key.clone());
        let delete = move || {
            let _changing = inner.changing.lock().unwrap_or_else(PoisonError::into_inner);
            delete(&folder, name.as_str())
        };
        blocking(delete).await.map_err(|error| failed(&self.0.name, "delete", key, &error))
    }
}

pub(super) fn refuse_key(key: &ObjectKey, rule: &str) -> OriginError {
    let message = format!("The key {:?} cannot be a file in a folder: {rule}.", key.as_str());
    OriginError::Refused(error::reply(400, "InvalidArgument", message))
}

/// Compares a body with what was announced of it.
pub(super) fn check_body(
    received: &Received,
    length: Option<u64>,
    md5: Option<[u8; 16]>,
) -> Result<(), OriginError> {
    let refuse = |code, message: &str| Err(OriginError::Refused(error::reply(400, code, message)));
    if length.is_some_and(|length| length != received.size) {
        return refuse(
            "IncompleteBody",
            "You did not provide the number of bytes specified by the Content-Length HTTP header.",
        );
    }
    if md5.is_some_and(|md5| md5 != received.md5) {
        return refuse(
            "BadDigest",
            "The Content-MD5 you specified did not match what we received.",
        );
    }
    Ok(())
}

fn commit(
    bucket: &Path,
    key: &ObjectKey,
    temp: Temp,
    headers: &StoredHeaders,
    precondition: &Precondition,
) -> Result<ETag, NotCommitted> {
    let refuse = |rule| NotCommitted::Refused(refuse_key(key, rule));
    let path = key::path(bucket, key.as_str()).map_err(refuse)?;
    let old = visible(bucket, &path)?.map(|found| Stamp::of(&found));
    check_precondition(precondition, old.as_ref())?;
    make_folders(bucket, &path, refuse)?;
    if absent(fs::symlink_metadata(&path))?.is_some_and(|found| found.is_dir()) {
        if holds_object(bucket, &path, key.as_str().len() + 1)? {
            return Err(refuse("other keys begin with it and '/', so it is a folder"));
        }
        remove_empty_folders(&path)?;
    }
    sidecar::store(bucket, key.as_str(), &Stamp::of(&temp.file.metadata()?), headers)?;
    let file = temp.file.try_clone()?;
    temp.rename(&path)?;
    let new = Stamp::of(&file.metadata()?);
    if let Some(old) = old.filter(|old| (old.inode, old.modified) != (new.inode, new.modified)) {
        sidecar::remove(bucket, key.as_str(), &old)?;
    }
    new.etag().ok_or_else(|| io::Error::other("the tag is not ASCII").into())
}

fn check_precondition(wanted: &Precondition, old: Option<&Stamp>) -> Result<(), NotCommitted> {
    let refuse = |status, code, message: &str| {
        let reply = error::reply(status, code, message);
        Err(NotCommitted::Refused(if status == 404 {
            OriginError::NotFound(reply)
        } else {
            OriginError::Refused(reply)
        }))
    };
    let failed = "At least one of the pre-conditions you specified did not hold";
    match (wanted, old) {
        (Precondition::None, _) | (Precondition::Absent, None) => Ok(()),
        (Precondition::Matches(_), None) => {
            refuse(404, "NoSuchKey", "The specified key does not exist.")
        }
        (Precondition::Matches(tag), Some(old)) if old.etag().as_ref() == Some(tag) => Ok(()),
        _ => refuse(412, "PreconditionFailed", failed),
    }
}

/// Makes the folders above `path`. None of them may be a file or a link.
fn make_folders(
    bucket: &Path,
    path: &Path,
    refuse: impl Fn(&'static str) -> NotCommitted,
) -> Result<(), NotCommitted> {
    let mut folder = bucket.to_path_buf();
    let parts = path.parent().and_then(|parent| parent.strip_prefix(bucket).ok());
    for part in parts.into_iter().flatten() {
        folder.push(part);
        match absent(fs::symlink_metadata(&folder))? {
            Some(found) if found.is_dir() => {}
            Some(_) => return Err(refuse("a part of it is an object, or a link, and no folder")),
            None => match fs::create_dir(&folder) {
                // Another process was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            },
        }
    }
    Ok(())
}

/// Removes a tree of folders without a file in it; fails at the first file.
fn remove_empty_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty_folders(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

fn delete(bucket: &Path, key: &str) -> io::Result<()> {
    let Ok(path) = key::path(bucket, key) else { return Ok(()) };
    let folder = path.parent().unwrap_or(bucket);
    // Through a link there are no keys, so nothing to delete either.
    if !super::open::is_plain_folder(bucket, folder)? {
        return Ok(());
    }
    let Some(found) = visible(bucket, &path)? else { return Ok(()) };
    absent(fs::remove_file(&path))?;
    sidecar::remove(bucket, key, &Stamp::of(&found))?;
    let mut folder = folder;
    while folder != bucket && folder.file_name().is_some_and(|name| name != PRIVATE) {
        // Not empty, or not ours to remove: then it stays.
        if fs::remove_dir(folder).is_err() {
            break;
        }
        let Some(above) = folder.parent() else { break };
        folder = above;
    }
    Ok(())
}
