//! Writes: PUT and DELETE of one object.
//!
//! Invariant: an object becomes visible whole, by one rename, or not at all; with its headers.

use super::checksum::Stated;
use super::key::{self, PRIVATE, Stamp};
use super::open::{absent, visible};
use super::sidecar::{self, StoredHeaders};
use super::temp::{NotReceived, Received, Temp, receive, sync_folder_of};
use super::walk::holds_object;
use super::{DirectoryOrigin, Inner, blocking, failed, no_such_bucket, refused};
use crate::metrics::Operation;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::HeaderMap;
use larder_model::{BodyBroken, BucketName, ETag, ObjectKey, OriginError};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

/// What must hold of the current object for a write to replace it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    #[default]
    None,
    /// There must be none: If-None-Match: *.
    Absent,
    /// There must be one.
    Exists,
    /// It must have this tag, quoted or not: If-Match.
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

/// A body on its way in, and what is known of it.
pub(super) struct Incoming<'a> {
    pub(super) bytes: BoxStream<'a, io::Result<Bytes>>,
    /// How long it must be.
    pub(super) length: Option<u64>,
    /// Its MD5.
    pub(super) md5: Option<[u8; 16]>,
    /// Its checksum.
    pub(super) checksum: Option<Stated>,
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

/// A refusal as a result of its own, so that an I/O error stays one.
pub(super) fn or_refused<T>(done: Result<T, NotCommitted>) -> io::Result<Result<T, OriginError>> {
    match done {
        Ok(value) => Ok(Ok(value)),
        Err(NotCommitted::Refused(error)) => Ok(Err(error)),
        Err(NotCommitted::Disk(error)) => Err(error),
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
        let result = self.delete_object(bucket, key, Precondition::None).await;
        self.count(Operation::Delete, &result);
        result
    }

    async fn put_object(
        &self,
        request: PutRequest,
        bytes: BoxStream<'_, io::Result<Bytes>>,
    ) -> Result<ETag, OriginError> {
        let bucket = self.bucket(&request.bucket).await?;
        key::path(&bucket, request.key.as_str()).map_err(|rule| refuse_key(&request.key, rule))?;
        let PutRequest { key, headers, length, md5, precondition, .. } = request;
        let incoming = Incoming { bytes, length, md5, checksum: None };
        let received = self.receive(&bucket, &key, incoming, None).await?;
        let stored = StoredHeaders::of(&headers);
        tag_of(&self.commit(bucket, key, received.temp, stored, precondition).await?)
    }

    /// Writes a body to a synced temporary file, and compares it with what was said of it. Without
    /// a checksum that was stated, one by `algorithm` is made.
    pub(super) async fn receive(
        &self,
        bucket: &Path,
        key: &ObjectKey,
        incoming: Incoming<'_>,
        algorithm: Option<super::checksum::Algorithm>,
    ) -> Result<Received, OriginError> {
        let Incoming { bytes, length, md5, checksum } = incoming;
        let algorithm = checksum.as_ref().map(Stated::algorithm).or(algorithm);
        let received = receive(bucket, bytes, length.unwrap_or(u64::MAX), algorithm).await;
        let received = received.map_err(|error| match error {
            NotReceived::Disk(error) if error.kind() == io::ErrorKind::NotFound => no_such_bucket(),
            NotReceived::Disk(error) => failed(&self.0.name, "write", key, &error),
            NotReceived::TooLong => wrong_length(),
            NotReceived::Body(error) if is_broken(&error) => OriginError::BodyBroken,
            NotReceived::Body(error) => {
                let message = format!("The request body ended early: {error}");
                refused(400, "IncompleteBody", message)
            }
        })?;
        check_body(&received, length, md5, checksum.as_ref())?;
        Ok(received)
    }

    /// Makes a sealed temporary file the object of `key`.
    pub(super) async fn commit(
        &self,
        bucket: PathBuf,
        key: ObjectKey,
        temp: Temp,
        stored: StoredHeaders,
        precondition: Precondition,
    ) -> Result<Stamp, OriginError> {
        let inner = Arc::clone(&self.0);
        let name = key.clone();
        let commit = move || or_refused(inner.commit(&bucket, &key, temp, &stored, &precondition));
        blocking(commit).await.map_err(|error| failed(&self.0.name, "write", &name, &error))?
    }

    pub(super) async fn delete_object(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        precondition: Precondition,
    ) -> Result<(), OriginError> {
        let folder = self.bucket(bucket).await?;
        let (inner, name) = (Arc::clone(&self.0), key.clone());
        let delete = move || {
            let _changing = inner.changing.lock().unwrap_or_else(PoisonError::into_inner);
            or_refused(delete(&folder, name.as_str(), &precondition))
        };
        blocking(delete).await.map_err(|error| failed(&self.0.name, "delete", key, &error))?
    }
}

impl Inner {
    /// As [`DirectoryOrigin::commit`]. Blocking.
    ///
    /// The disk is waited for outside of the lock: before, for what belongs to the object, which
    /// nobody reads as long as there is no such file; after, for the object's name.
    pub(super) fn commit(
        &self,
        bucket: &Path,
        key: &ObjectKey,
        temp: Temp,
        stored: &StoredHeaders,
        precondition: &Precondition,
    ) -> Result<Stamp, NotCommitted> {
        let refuse = |rule| NotCommitted::Refused(refuse_key(key, rule));
        let path = key::path(bucket, key.as_str()).map_err(refuse)?;
        let sealed = Stamp::of(&temp.file.metadata()?);
        sidecar::store(bucket, key.as_str(), &sealed, stored).map_err(or_no_bucket)?;
        let done = {
            let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            commit(bucket, key, &path, temp, precondition)
        };
        match done {
            Ok(new) => {
                sync_folder_of(&path)?;
                Ok(new)
            }
            Err(error) => {
                // Best effort: nothing reads it.
                let _ = sidecar::remove(bucket, key.as_str(), &sealed);
                Err(error)
            }
        }
    }
}

/// What is written inside of a bucket is missing its folder only when the bucket has gone.
fn or_no_bucket(error: io::Error) -> NotCommitted {
    match error.kind() {
        io::ErrorKind::NotFound => NotCommitted::Refused(no_such_bucket()),
        _ => NotCommitted::Disk(error),
    }
}

fn is_broken(error: &io::Error) -> bool {
    matches!(error.get_ref(), Some(inner) if inner.is::<BodyBroken>())
}

/// The tag of a file that has just been written.
pub(super) fn tag_of(stamp: &Stamp) -> Result<ETag, OriginError> {
    stamp.etag().ok_or_else(|| refused(500, "InternalError", "The object's tag is not ASCII."))
}

pub(super) fn refuse_key(key: &ObjectKey, rule: &str) -> OriginError {
    let message = format!("The key {:?} cannot be a file in a folder: {rule}.", key.as_str());
    refused(400, "InvalidArgument", message)
}

fn wrong_length() -> OriginError {
    let message =
        "You did not provide the number of bytes specified by the Content-Length HTTP header.";
    refused(400, "IncompleteBody", message)
}

/// Compares a body with what was announced of it.
fn check_body(
    received: &Received,
    length: Option<u64>,
    md5: Option<[u8; 16]>,
    checksum: Option<&Stated>,
) -> Result<(), OriginError> {
    if length.is_some_and(|length| length != received.size) {
        return Err(wrong_length());
    }
    if md5.is_some_and(|md5| md5 != received.sums.md5) {
        let message = "The Content-MD5 you specified did not match what we received.";
        return Err(refused(400, "BadDigest", message));
    }
    if let Some(stated) = checksum {
        // A stream that has ended without its trailer was not verified.
        let value = stated.value().ok_or(OriginError::BodyBroken)?;
        if received.sums.checksum.as_ref() != Some(&value) {
            let name = value.algorithm.name();
            let message =
                format!("The {name} you specified did not match the calculated checksum.");
            return Err(refused(400, "BadDigest", message));
        }
    }
    Ok(())
}

fn commit(
    bucket: &Path,
    key: &ObjectKey,
    path: &Path,
    temp: Temp,
    precondition: &Precondition,
) -> Result<Stamp, NotCommitted> {
    let refuse = |rule| NotCommitted::Refused(refuse_key(key, rule));
    if !absent(fs::symlink_metadata(bucket))?.is_some_and(|found| found.is_dir()) {
        return Err(NotCommitted::Refused(no_such_bucket()));
    }
    let old = visible(bucket, path)?.map(|found| Stamp::of(&found));
    check_precondition(precondition, old.as_ref())?;
    make_folders(bucket, path, refuse)?;
    if absent(fs::symlink_metadata(path))?.is_some_and(|found| found.is_dir()) {
        if holds_object(bucket, path, key.as_str().len() + 1)? {
            return Err(refuse("other keys begin with it and '/', so it is a folder"));
        }
        remove_empty_folders(path)?;
    }
    let file = temp.file.try_clone()?;
    temp.show(path).map_err(or_no_bucket)?;
    // Before the lock is let go: a file that replaces this one changes its times.
    let new = Stamp::of(&file.metadata()?);
    if let Some(old) = old.filter(|old| (old.inode, old.modified) != (new.inode, new.modified)) {
        sidecar::remove(bucket, key.as_str(), &old)?;
    }
    Ok(new)
}

fn check_precondition(wanted: &Precondition, old: Option<&Stamp>) -> Result<(), NotCommitted> {
    let refuse =
        |status, code, message: &str| Err(NotCommitted::Refused(refused(status, code, message)));
    let failed = "At least one of the pre-conditions you specified did not hold";
    let has = |old: &Stamp, tag: &ETag| old.etag().is_some_and(|has| has.opaque() == tag.opaque());
    match (wanted, old) {
        (Precondition::None, _)
        | (Precondition::Absent, None)
        | (Precondition::Exists, Some(_)) => Ok(()),
        (Precondition::Matches(_) | Precondition::Exists, None) => {
            refuse(404, "NoSuchKey", "The specified key does not exist.")
        }
        (Precondition::Matches(tag), Some(old)) if has(old, tag) => Ok(()),
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
                made => {
                    made?;
                    // The folder itself is on the disk once the one above it is.
                    File::open(folder.parent().unwrap_or(bucket))?.sync_all()?;
                }
            },
        }
    }
    Ok(())
}

/// Removes a tree of folders without a file in it; fails at the first file.
pub(super) fn remove_empty_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty_folders(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

fn delete(bucket: &Path, key: &str, precondition: &Precondition) -> Result<(), NotCommitted> {
    let found = find(bucket, key)?;
    let stamp = found.as_ref().map(|(_, found)| Stamp::of(found));
    check_precondition(precondition, stamp.as_ref())?;
    let Some((path, found)) = found else { return Ok(()) };
    absent(fs::remove_file(&path))?;
    sidecar::remove(bucket, key, &Stamp::of(&found))?;
    let mut folder = path.parent().unwrap_or(bucket);
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

/// The object of `key`, if there is one: its path, and its state.
pub(super) fn find(bucket: &Path, key: &str) -> io::Result<Option<(PathBuf, fs::Metadata)>> {
    let Ok(path) = key::path(bucket, key) else { return Ok(None) };
    // Through a link there are no keys.
    if !super::open::is_plain_folder(bucket, path.parent().unwrap_or(bucket))? {
        return Ok(None);
    }
    Ok(visible(bucket, &path)?.map(|found| (path, found)))
}
