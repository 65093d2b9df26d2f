//! Multipart uploads: parts as files in a private folder, joined into one when complete.
//!
//! Invariant: parts are invisible to reads and listings, and survive a restart; completing an
//! upload is one rename, as a PUT is. What was answered was on the disk before.

use super::key::{self, PRIVATE, Stamp};
use super::open::absent;
use super::put::{NotCommitted, Precondition, check_body, refuse_key};
use super::sidecar::StoredHeaders;
use super::temp::{Temp, random_name};
use super::{DirectoryOrigin, blocking, failed};
use crate::error;
use crate::metrics::Operation;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::HeaderMap;
use larder_model::{BucketName, ETag, ObjectKey, OriginError, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The limits of S3 (User Guide, "Amazon S3 multipart upload limits").
const MAX_PART: u32 = 10_000;
const MIN_PART_BYTES: u64 = 5 * 1024 * 1024;

/// The name of one upload.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// One part that was uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartEntry {
    /// 1 to 10,000.
    pub number: u32,
    /// In bytes.
    pub size: u64,
    /// The MD5 of its bytes.
    pub etag: ETag,
    /// When it was uploaded.
    pub last_modified: Option<Timestamp>,
}

/// What is kept of the request that began an upload.
#[derive(Serialize, Deserialize)]
struct Begun {
    key: String,
    headers: StoredHeaders,
}

impl DirectoryOrigin {
    /// Begins an upload. `headers` are those of the object to be, as for a PUT.
    pub async fn create_upload(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        headers: &HeaderMap,
    ) -> Result<UploadId, OriginError> {
        let begun = Begun { key: key.to_string(), headers: StoredHeaders::of(headers) };
        let work = |bucket: PathBuf, key: ObjectKey| async move {
            key::path(&bucket, key.as_str()).map_err(|rule| refuse_key(&key, rule))?;
            let create = move || create(&bucket, &begun);
            blocking(create).await.map_err(|error| failed(&self.0.name, "write", &key, &error))
        };
        let result = match self.bucket(bucket).await {
            Ok(folder) => work(folder, key.clone()).await,
            Err(error) => Err(error),
        };
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
        body: BoxStream<'_, io::Result<Bytes>>,
    ) -> Result<ETag, OriginError> {
        let work = async {
            let (bucket, folder, _) = self.begun(bucket, key, upload).await?;
            if !(1..=MAX_PART).contains(&number) {
                let message = "Part number must be an integer between 1 and 10000, inclusive";
                return Err(OriginError::Refused(error::reply(400, "InvalidArgument", message)));
            }
            let received = self.receive(&bucket, key, body).await?;
            check_body(&received, length, md5)?;
            let md5 = hex::encode(received.md5);
            let name = part_name(number, &md5);
            let store = move || {
                received.temp.rename(&folder.join(&name))?;
                remove_parts(&folder, number, &name)
            };
            blocking(store).await.map_err(|error| failed(&self.0.name, "write", key, &error))?;
            tag(&md5)
        };
        let result = work.await;
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
        let work = async {
            let (_, folder, _) = self.begun(bucket, key, upload).await?;
            let parts = blocking(move || parts(&folder)).await;
            parts.map_err(|error| failed(&self.0.name, "list the parts of", key, &error))
        };
        let result = work.await;
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
        let work = async {
            let (bucket, folder, begun) = self.begun(bucket, key, upload).await?;
            let (at, from) = (bucket.clone(), folder.clone());
            let wanted = wanted.to_vec();
            let join = move || match join(&at, &from, &wanted) {
                Ok(temp) => Ok(Ok(temp)),
                Err(NotCommitted::Refused(error)) => Ok(Err(error)),
                Err(NotCommitted::Disk(error)) => Err(error),
            };
            let disk = |error| failed(&self.0.name, "write", key, &error);
            let temp = blocking(join).await.map_err(disk)??;
            let etag = self.commit(bucket, key.clone(), temp, begun.headers, precondition).await?;
            blocking(move || absent(fs::remove_dir_all(folder))).await.map_err(disk)?;
            Ok(etag)
        };
        let result = work.await;
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
        let work = async {
            let (_, folder, _) = self.begun(bucket, key, upload).await?;
            let removed = blocking(move || absent(fs::remove_dir_all(folder))).await;
            removed.map(drop).map_err(|error| failed(&self.0.name, "delete", key, &error))
        };
        let result = work.await;
        self.count(Operation::Upload, &result);
        result
    }

    /// The bucket's and the upload's folder, and what was said when the upload began.
    async fn begun(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
    ) -> Result<(PathBuf, PathBuf, Begun), OriginError> {
        let bucket = self.bucket(bucket).await?;
        let folder = uploads(&bucket).join(upload.as_str());
        let path = folder.join(RECORD);
        let record = blocking(move || absent(fs::read(path))).await;
        let record =
            record.map_err(|error| failed(&self.0.name, "read the upload of", key, &error))?;
        let begun: Option<Begun> = record.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let begun = begun.filter(|begun| begun.key == key.as_str()).ok_or_else(|| {
            let message = "The specified upload does not exist. The upload ID may be invalid, \
                or the upload may have been aborted or completed.";
            OriginError::NotFound(error::reply(404, "NoSuchUpload", message))
        })?;
        Ok((bucket, folder, begun))
    }
}

/// The file in an upload's folder that says what it is for. Written before the id is told.
const RECORD: &str = "upload.json";

fn uploads(bucket: &Path) -> PathBuf {
    bucket.join(PRIVATE).join("uploads")
}

fn create(bucket: &Path, begun: &Begun) -> io::Result<UploadId> {
    let id = UploadId(random_name());
    let folder = uploads(bucket).join(id.as_str());
    fs::create_dir_all(&folder)?;
    let mut temp = Temp::create(bucket)?;
    temp.file.write_all(&serde_json::to_vec(begun)?)?;
    temp.file.sync_all()?;
    temp.rename(&folder.join(RECORD))?;
    Ok(id)
}

/// Number and digest are in the name, so that one rename publishes both with the bytes.
fn part_name(number: u32, md5: &str) -> String {
    format!("part.{number:05}.{md5}")
}

fn read_part_name(name: &str) -> Option<(u32, &str)> {
    let (number, md5) = name.strip_prefix("part.")?.split_once('.')?;
    Some((number.parse().ok()?, md5))
}

fn tag(md5: &str) -> Result<ETag, OriginError> {
    ETag::new(&format!("\"{md5}\"")).ok_or_else(|| {
        OriginError::Refused(error::reply(500, "InternalError", "The part's tag is not ASCII."))
    })
}

/// Removes the files of part `number` but `kept`.
fn remove_parts(folder: &Path, number: u32, kept: &str) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str().filter(|name| *name != kept) else { continue };
        if read_part_name(name).is_some_and(|(other, _)| other == number) {
            absent(fs::remove_file(folder.join(name)))?;
        }
    }
    Ok(())
}

fn parts(folder: &Path) -> io::Result<Vec<PartEntry>> {
    let mut parts = Vec::new();
    for entry in absent(fs::read_dir(folder))?.into_iter().flatten() {
        let entry = entry?;
        let name = entry.file_name();
        let Some((number, md5)) = name.to_str().and_then(read_part_name) else { continue };
        let (Some(found), Ok(etag)) = (absent(entry.metadata())?, tag(md5)) else { continue };
        let stamp = Stamp::of(&found);
        let last_modified = u64::try_from(stamp.modified.0).ok().map(|s| Timestamp(s * 1000));
        parts.push(PartEntry { number, size: stamp.size, etag, last_modified });
    }
    parts.sort_by_key(|part| part.number);
    Ok(parts)
}

/// Checks the client's list against the parts and joins them in one synced temporary file.
fn join(bucket: &Path, folder: &Path, wanted: &[(u32, ETag)]) -> Result<Temp, NotCommitted> {
    let refuse = |code, message: &str| {
        NotCommitted::Refused(OriginError::Refused(error::reply(400, code, message)))
    };
    if wanted.is_empty() {
        return Err(refuse("MalformedXML", "You must specify at least one part"));
    }
    if !wanted.is_sorted_by(|(a, _), (b, _)| a < b) {
        let message = "The list of parts was not in ascending order.";
        return Err(refuse("InvalidPartOrder", message));
    }
    let found = parts(folder)?;
    let mut temp = Temp::create(bucket)?;
    for (at, (number, etag)) in wanted.iter().enumerate() {
        let part =
            found.iter().find(|part| part.number == *number && part.etag.opaque() == etag.opaque());
        let Some(part) = part else {
            let message = "One or more of the specified parts could not be found. \
                The part may not have been uploaded, or its entity tag may not match.";
            return Err(refuse("InvalidPart", message));
        };
        if part.size < MIN_PART_BYTES && at + 1 < wanted.len() {
            let message = "Your proposed upload is smaller than the minimum allowed size";
            return Err(refuse("EntityTooSmall", message));
        }
        // Copied in the kernel where the file system can.
        let mut from = File::open(folder.join(part_name(*number, part.etag.opaque())))?;
        let copied = io::copy(&mut from, &mut temp.file)?;
        if copied != part.size {
            return Err(io::Error::other("a part changed while it was copied").into());
        }
    }
    temp.file.sync_all()?;
    Ok(temp)
}
