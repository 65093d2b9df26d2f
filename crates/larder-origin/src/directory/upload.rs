//! Multipart uploads: parts as files in a private folder, joined into one when complete.
//!
//! Invariant: parts are invisible to reads and listings, and survive a restart; completing an
//! upload is one rename, as a PUT is. What was answered was on the disk before. Whoever changes an
//! upload holds its lock, so that of two at once the later finds what the earlier left.

mod join;
mod parts;

pub use parts::PartEntry;

use super::checksum::{Algorithm, Kind};
use super::key;
use super::open::absent;
use super::put::{Incoming, Precondition, or_refused, refuse_key, tag_of};
use super::sidecar::StoredHeaders;
use super::temp::{Received, Temp, lock, private_folder};
use super::{DirectoryOrigin, blocking, failed, key::PRIVATE, no_such_bucket, refused};
use crate::metrics::Operation;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::HeaderMap;
use join::{Joined, join};
use larder_model::{BucketName, ETag, ObjectKey, OriginError};
use parts::{part_name, parts, publish, tag};
use rand::Rng as _;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The highest number of a part (S3 User Guide, "Amazon S3 multipart upload limits").
pub(super) const MAX_PART: u32 = 10_000;

/// The name of one upload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UploadId(String);

impl UploadId {
    /// Reads what a client sent; `None` when no upload can have this name.
    #[must_use]
    pub fn new(id: &str) -> Option<Self> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        (id.len() == 32 && id.bytes().all(hex)).then(|| Self(id.to_owned()))
    }

    /// As a client sends it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is kept of the request that began an upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Begun {
    key: String,
    headers: StoredHeaders,
    /// How each part, and so the object, is summed.
    #[serde(default)]
    pub(super) checksum: Option<(Algorithm, Kind)>,
}

/// One upload, as every request but the first names it.
#[derive(Clone, Debug)]
pub(super) struct UploadName {
    pub(super) bucket: BucketName,
    pub(super) key: ObjectKey,
    pub(super) id: UploadId,
}

/// An upload that is there.
struct Found {
    bucket: PathBuf,
    folder: PathBuf,
    begun: Begun,
}

/// A part as the client names it to complete an upload.
#[derive(Clone, Debug)]
pub(super) struct WantedPart {
    pub(super) number: u32,
    pub(super) etag: String,
    pub(super) checksum: Option<super::checksum::Checksum>,
}

/// What an upload is to become.
#[derive(Clone, Debug)]
pub(super) struct Completion {
    pub(super) parts: Vec<WantedPart>,
    pub(super) precondition: Precondition,
    /// The size that the client says the object has.
    pub(super) size: Option<u64>,
    /// The checksum, without the `-` and the number of parts, that it says the object has.
    pub(super) checksum: Option<super::checksum::Checksum>,
}

/// An upload that is listed.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) key: String,
    pub(super) id: UploadId,
    pub(super) began: SystemTime,
    pub(super) checksum: Option<(Algorithm, Kind)>,
}

impl DirectoryOrigin {
    /// Begins an upload. `headers` are those of the object to be, as for a PUT.
    pub async fn create_upload(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        headers: &HeaderMap,
    ) -> Result<UploadId, OriginError> {
        let result = self.begin(bucket, key, StoredHeaders::of(headers), None).await;
        self.count(Operation::Upload, &result);
        result
    }

    /// Uploads a part, replacing one of the same number. Returns its tag: the MD5 of its bytes.
    #[expect(clippy::too_many_arguments, reason = "the operation has as many in S3")]
    pub async fn upload_part(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
        number: u32,
        length: Option<u64>,
        md5: Option<[u8; 16]>,
        bytes: BoxStream<'_, io::Result<Bytes>>,
    ) -> Result<ETag, OriginError> {
        let name = UploadName { bucket: bucket.clone(), key: key.clone(), id: upload.clone() };
        let incoming = Incoming { bytes, length, md5, checksum: None };
        let result = self.put_part(&name, number, incoming).await.map(|part| part.etag);
        self.count(Operation::Upload, &result);
        result
    }

    /// The parts so far, in the order of their numbers.
    pub async fn list_parts(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
    ) -> Result<Vec<PartEntry>, OriginError> {
        let name = UploadName { bucket: bucket.clone(), key: key.clone(), id: upload.clone() };
        let result = self.parts_of(&name).await.map(|(_, parts)| parts);
        self.count(Operation::Upload, &result);
        result
    }

    /// Joins the named parts to the object, and forgets the upload. Returns the object's tag, which
    /// is the folder's and not S3's digest of digests.
    pub async fn complete_upload(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
        wanted: &[(u32, ETag)],
        precondition: Precondition,
    ) -> Result<ETag, OriginError> {
        let name = UploadName { bucket: bucket.clone(), key: key.clone(), id: upload.clone() };
        let part = |(number, etag): &(u32, ETag)| WantedPart {
            number: *number,
            etag: etag.to_string(),
            checksum: None,
        };
        let parts = wanted.iter().map(part).collect();
        let completion = Completion { parts, precondition, size: None, checksum: None };
        let result = self.complete(&name, completion).await.map(|(etag, _)| etag);
        self.count(Operation::Upload, &result);
        result
    }

    /// Forgets the upload and its parts.
    pub async fn abort_upload(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
    ) -> Result<(), OriginError> {
        let name = UploadName { bucket: bucket.clone(), key: key.clone(), id: upload.clone() };
        let result = self.abort(&name).await;
        self.count(Operation::Upload, &result);
        result
    }

    pub(super) async fn begin(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        headers: StoredHeaders,
        checksum: Option<(Algorithm, Kind)>,
    ) -> Result<UploadId, OriginError> {
        let folder = self.bucket(bucket).await?;
        key::path(&folder, key.as_str()).map_err(|rule| refuse_key(key, rule))?;
        let begun = Begun { key: key.to_string(), headers, checksum };
        blocking(move || create(&folder, &begun)).await.map_err(|error| match error.kind() {
            ErrorKind::NotFound => no_such_bucket(),
            _ => failed(&self.0.name, "write", key, &error),
        })
    }

    pub(super) async fn put_part(
        &self,
        upload: &UploadName,
        number: u32,
        incoming: Incoming<'_>,
    ) -> Result<PartEntry, OriginError> {
        let found = self.found(upload).await?;
        check_number(number)?;
        let ours = found.begun.checksum.map(|(algorithm, _)| algorithm);
        let theirs = incoming.checksum.as_ref().map(super::checksum::Stated::algorithm);
        if let (Some(ours), Some(theirs)) = (ours, theirs)
            && ours != theirs
        {
            let (ours, theirs) = (ours.name().to_lowercase(), theirs.name().to_lowercase());
            let message = format!(
                "Checksum Type mismatch occurred, expected checksum Type: {ours}, \
                 actual checksum Type: {theirs}"
            );
            return Err(refused(400, "InvalidRequest", message));
        }
        let received = self.receive(&found.bucket, &upload.key, incoming, ours).await?;
        self.publish_part(upload, number, received).await
    }

    /// Makes a sealed temporary file a part of the upload.
    pub(super) async fn publish_part(
        &self,
        upload: &UploadName,
        number: u32,
        received: Received,
    ) -> Result<PartEntry, OriginError> {
        let folder = self.found(upload).await?.folder;
        let etag = tag(&hex::encode(received.sums.md5))?;
        let name = part_name(number, &received.sums);
        let (size, checksum) = (received.size, received.sums.checksum.clone());
        let last_modified = parts::last_modified(&received.temp.file).ok().flatten();
        let work = move || match hold(&folder)? {
            Some(_held) => publish(&folder, number, &name, received.temp).map(Some),
            None => Ok(None),
        };
        let done = blocking(work).await;
        let done = done.map_err(|error| failed(&self.0.name, "write", &upload.key, &error))?;
        done.ok_or_else(no_such_upload)?;
        Ok(PartEntry { number, size, etag, last_modified, checksum })
    }

    /// What was said when the upload began, and its parts.
    pub(super) async fn parts_of(
        &self,
        upload: &UploadName,
    ) -> Result<(Begun, Vec<PartEntry>), OriginError> {
        let Found { folder, begun, .. } = self.found(upload).await?;
        let found = blocking(move || parts(&folder)).await;
        let found = found
            .map_err(|error| failed(&self.0.name, "list the parts of", &upload.key, &error))?;
        Ok((begun, found))
    }

    pub(super) async fn complete(
        &self,
        upload: &UploadName,
        wanted: Completion,
    ) -> Result<(ETag, Option<super::checksum::ObjectChecksum>), OriginError> {
        let Found { bucket, folder, begun } = self.found(upload).await?;
        let (inner, key) = (Arc::clone(&self.0), upload.key.clone());
        let work = move || {
            let Some(_held) = hold(&folder)? else { return Ok(Err(no_such_upload())) };
            let done = join(&bucket, &folder, &begun, &wanted).and_then(|joined| {
                let Joined { temp, checksum } = joined;
                let stored = begun.headers.clone().with_checksum(checksum.as_ref());
                let stamp = inner.commit(&bucket, &key, temp, &stored, &wanted.precondition)?;
                forget(&folder)?;
                Ok((stamp, checksum))
            });
            or_refused(done)
        };
        let done = blocking(work).await;
        let (stamp, checksum) =
            done.map_err(|error| failed(&self.0.name, "write", &upload.key, &error))??;
        Ok((tag_of(&stamp)?, checksum))
    }

    pub(super) async fn abort(&self, upload: &UploadName) -> Result<(), OriginError> {
        let folder = self.found(upload).await?.folder;
        let work = move || match hold(&folder)? {
            Some(_held) => forget(&folder).map(Some),
            None => Ok(None),
        };
        let done = blocking(work).await;
        let done = done.map_err(|error| failed(&self.0.name, "delete", &upload.key, &error))?;
        done.ok_or_else(no_such_upload)
    }

    /// All uploads of the bucket in the order of S3: by key, then by age.
    pub(super) async fn pending(&self, bucket: &BucketName) -> Result<Vec<Pending>, OriginError> {
        let folder = self.bucket(bucket).await?;
        let found = blocking(move || pending(&folder)).await;
        found.map_err(|error| failed(&self.0.name, "list the uploads of", bucket, &error))
    }

    async fn found(&self, upload: &UploadName) -> Result<Found, OriginError> {
        let bucket = self.bucket(&upload.bucket).await?;
        let folder = uploads(&bucket).join(upload.id.as_str());
        let path = folder.join(RECORD);
        let record = blocking(move || absent(fs::read(path))).await;
        let record = record
            .map_err(|error| failed(&self.0.name, "read the upload of", &upload.key, &error))?;
        let begun: Option<Begun> = record.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let begun = begun.filter(|begun| begun.key == upload.key.as_str());
        Ok(Found { bucket, folder, begun: begun.ok_or_else(no_such_upload)? })
    }
}

pub(super) fn no_such_upload() -> OriginError {
    let message = "The specified upload does not exist. The upload ID may be invalid, \
        or the upload may have been aborted or completed.";
    refused(404, "NoSuchUpload", message)
}

pub(super) fn check_number(number: u32) -> Result<(), OriginError> {
    if (1..=MAX_PART).contains(&number) {
        return Ok(());
    }
    let message = "Part number must be an integer between 1 and 10000, inclusive";
    Err(refused(400, "InvalidArgument", message))
}

/// The file in an upload's folder that says what it is for. Written before the id is told, locked
/// while the upload is changed, and the first to go.
pub(super) const RECORD: &str = "upload.json";

/// Where uploads are, in the private folder.
pub(super) const FOLDER: &str = "uploads";

fn uploads(bucket: &Path) -> PathBuf {
    bucket.join(PRIVATE).join(FOLDER)
}

fn create(bucket: &Path, begun: &Begun) -> io::Result<UploadId> {
    let id = new_id();
    let folder = private_folder(bucket, &[FOLDER, id.as_str()])?;
    let mut temp = Temp::create(bucket)?;
    temp.file.write_all(&serde_json::to_vec(begun)?)?;
    temp.file.sync_all()?;
    temp.rename(&folder.join(RECORD))?;
    Ok(id)
}

/// A name that nobody else takes, and that sorts behind all before it: S3 lists the uploads of one
/// key in the order in which they began, and a page goes on behind an upload that may have gone.
#[expect(
    clippy::disallowed_methods,
    reason = "orders names of uploads; nothing is decided by the time in one"
)]
fn new_id() -> UploadId {
    let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let nanos = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
    let random: u64 = rand::rng().random();
    UploadId(format!("{nanos:016x}{random:016x}"))
}

/// Waits until nobody else changes the upload, and keeps others from it until the file is closed;
/// `None` when it is not there any more.
fn hold(folder: &Path) -> io::Result<Option<File>> {
    let path = folder.join(RECORD);
    let Some(record) = absent(File::open(&path))? else { return Ok(None) };
    lock(&record)?;
    let still = absent(fs::metadata(&path))?;
    let still = still.is_some_and(|still| record.metadata().is_ok_and(|r| r.ino() == still.ino()));
    Ok(still.then_some(record))
}

/// Removes an upload's folder. From the first step on, there is no such upload.
pub(super) fn forget(folder: &Path) -> io::Result<()> {
    absent(fs::remove_file(folder.join(RECORD)))?;
    absent(fs::remove_dir_all(folder)).map(drop)
}

fn pending(bucket: &Path) -> io::Result<Vec<Pending>> {
    let mut found = Vec::new();
    for entry in absent(fs::read_dir(uploads(bucket)))?.into_iter().flatten() {
        let entry = entry?;
        let Some(id) = entry.file_name().to_str().and_then(UploadId::new) else { continue };
        let path = entry.path().join(RECORD);
        let Some(record) = absent(fs::read(&path))? else { continue };
        let Some(began) = absent(fs::metadata(&path))? else { continue };
        let Ok(begun) = serde_json::from_slice::<Begun>(&record) else { continue };
        let Begun { key, checksum, .. } = begun;
        found.push(Pending { key, id, began: began.modified()?, checksum });
    }
    found.sort_by(|a, b| (&a.key, &a.id).cmp(&(&b.key, &b.id)));
    Ok(found)
}
