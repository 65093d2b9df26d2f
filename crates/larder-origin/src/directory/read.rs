//! HEAD and GET of a file.
//!
//! Invariant: the state that was told and every byte that is yielded are of one stamp. After each
//! piece is read, and before it is yielded, descriptor and path are looked at again; a file that
//! changed in between ends the body with [`OriginError::VersionChanged`].

use super::key::Stamp;
use super::open::{self, Opened};
use super::{blocking, failed, refused};
use crate::error;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::header::{CONTENT_TYPE, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderValue};
use larder_model::{
    ByteRange, FetchRequest, Fetched, ObjectMeta, ObjectName, OriginError, OriginName,
};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use tokio::time::sleep;

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 512 * 1024;

/// How often a file that was written just now is waited for.
const SETTLE_TRIES: u32 = 8;

/// Opens the object of `name` in a state that its stamp identifies.
///
/// A file that changed within the last tick of the file system's clock is waited for (20 ms): a
/// further change in that tick would leave its stamp, and so its ETag, as it is.
pub(super) async fn open(
    origin: &OriginName,
    bucket: &Path,
    name: &ObjectName,
) -> Result<Opened, OriginError> {
    check_version(name)?;
    for _ in 0..SETTLE_TRIES {
        let (folder, key) = (bucket.to_path_buf(), name.key.clone());
        let opened = move || open::open(&folder, key.as_str());
        let opened =
            blocking(opened).await.map_err(|error| failed(origin, "open", name, &error))?;
        let opened = opened.ok_or_else(no_such_key)?;
        match opened.stamp.unsettled() {
            None => return Ok(opened),
            Some(left) => sleep(left).await,
        }
    }
    Err(OriginError::Busy {
        origin: origin.clone(),
        reason: format!("{name} is being written"),
        retry_after: Duration::from_secs(1),
    })
}

/// Refuses a version that there cannot be: a folder has the `null` one of each object.
pub(super) fn check_version(name: &ObjectName) -> Result<(), OriginError> {
    match name.version_id.as_ref().filter(|id| !id.is_null()) {
        None => Ok(()),
        Some(id) => {
            let message = format!("A folder keeps no versions, so not {id} either.");
            Err(refused(404, "NoSuchVersion", message))
        }
    }
}

pub(super) fn no_such_key() -> OriginError {
    refused(404, "NoSuchKey", "The specified key does not exist.")
}

/// What is told of an open object; its checksum only when it is asked for.
pub(super) fn meta(name: &ObjectName, opened: &Opened, checksums: bool) -> ObjectMeta {
    let stamp = &opened.stamp;
    let etag = stamp.etag();
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(name.key.as_str())));
    if let Ok(seconds) = u64::try_from(stamp.modified.0) {
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
        headers.extend(HeaderValue::from_str(&date).ok().map(|date| (LAST_MODIFIED, date)));
    }
    let value = etag.as_ref().and_then(|etag| HeaderValue::from_str(etag.as_str()).ok());
    headers.extend(value.map(|value| (ETAG, value)));
    // A stored header replaces a guessed one; one that was stored twice stays two.
    let stored = opened.stored.to_headers();
    for name in stored.keys() {
        headers.remove(name);
    }
    for (name, value) in &stored {
        headers.append(name.clone(), value.clone());
    }
    if let Some(tagging) = opened.stored.tagging() {
        headers.insert("x-amz-tagging-count", HeaderValue::from(tagging.split('&').count()));
    }
    if let Some(checksum) = opened.stored.checksum().filter(|_| checksums) {
        checksum.add_to(&mut headers);
    }
    ObjectMeta { size: stamp.size, etag, version_id: None, headers }
}

/// Refuses a part that the object does not have: a file is one part.
pub(super) fn check_part(part_number: Option<u32>) -> Result<(), OriginError> {
    match part_number {
        None | Some(1) => Ok(()),
        Some(_) => {
            let message = "The requested partnumber is not satisfiable.";
            Err(refused(416, "InvalidPartNumber", message))
        }
    }
}

/// The answer to a GET.
pub(super) async fn fetch(
    origin: &OriginName,
    bucket: &Path,
    request: FetchRequest,
) -> Result<Fetched, OriginError> {
    let FetchRequest { name, range, if_match, part_number, checksums } = request;
    check_part(part_number)?;
    let opened = open(origin, bucket, &name).await?;
    // S3 tells checksums with whole objects only (S3 API, GetObject, x-amz-checksum-mode).
    let meta = meta(&name, &opened, checksums && range.is_none());
    if if_match.is_some() && if_match != meta.etag {
        return Err(OriginError::VersionChanged);
    }
    let size = meta.size;
    let range = match range {
        None => ByteRange::new(0, size),
        Some(range) => Some(range.clip(size).ok_or_else(|| {
            let message = "The requested range is not satisfiable";
            let reply = error::reply(416, "InvalidRange", message);
            OriginError::RangeNotSatisfiable { size: Some(size), reply }
        })?),
    };
    let body = body(origin.clone(), name, opened, range);
    Ok(Fetched { meta, range, body })
}

/// A body in transfer: the file between two pieces.
struct Transfer {
    opened: Opened,
    next: u64,
    end: u64,
}

/// The bytes of `range` as they are read; none without.
pub(super) fn body(
    origin: OriginName,
    name: ObjectName,
    opened: Opened,
    range: Option<ByteRange>,
) -> BoxStream<'static, Result<Bytes, OriginError>> {
    let Some(range) = range else { return stream::empty().boxed() };
    let transfer = Transfer { opened, next: range.start(), end: range.end() };
    stream::unfold(Some(transfer), move |transfer| {
        let (origin, name) = (origin.clone(), name.clone());
        async move {
            let transfer = transfer.filter(|transfer| transfer.next < transfer.end)?;
            let read = move || transfer.read();
            match blocking(read).await {
                Ok(Some((piece, transfer))) => Some((Ok(piece), Some(transfer))),
                Ok(None) => Some((Err(OriginError::VersionChanged), None)),
                Err(error) => Some((Err(failed(&origin, "read", &name, &error)), None)),
            }
        }
    })
    .boxed()
}

impl Transfer {
    /// The next piece; `None` when the file is not what it was.
    fn read(mut self) -> io::Result<Option<(Bytes, Self)>> {
        let wanted = (self.end - self.next).min(PIECE_BYTES);
        let mut piece = Vec::with_capacity(usize::try_from(wanted).unwrap_or(0));
        let file = &mut self.opened.file;
        file.seek(SeekFrom::Start(self.next))?;
        file.by_ref().take(wanted).read_to_end(&mut piece)?;
        if piece.len() as u64 != wanted || !self.opened.is_current()? {
            return Ok(None);
        }
        self.next += wanted;
        Ok(Some((piece.into(), self)))
    }
}

/// A guess from the name's extension; S3's default for everything else.
fn content_type(key: &str) -> &'static str {
    let extension = key.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html",
        "txt" | "log" => "text/plain",
        "css" => "text/css",
        "csv" => "text/csv",
        "js" | "mjs" => "text/javascript",
        "json" => "application/json",
        "xml" => "application/xml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "tar" => "application/x-tar",
        "jpg" | "jpeg" => "image/jpeg",
        "png" => "image/png",
        "gif" => "image/gif",
        "svg" => "image/svg+xml",
        "webp" => "image/webp",
        "mp4" => "video/mp4",
        "wav" => "audio/wav",
        "wasm" => "application/wasm",
        _ => "binary/octet-stream",
    }
}

/// Where a bucket's folder is, if there is one: a real folder in the root, never a link.
pub(super) fn bucket_folder(root: &Path, bucket: &str) -> io::Result<Option<PathBuf>> {
    let path = root.join(bucket);
    Ok(open::is_plain_folder(root, &path)?.then_some(path))
}

/// The bucket's folder's age, which stands in for its creation.
pub(super) fn created(folder: &Path) -> io::Result<Option<larder_model::Timestamp>> {
    let found = open::absent(std::fs::metadata(folder))?;
    let seconds = found.and_then(|found| u64::try_from(Stamp::of(&found).modified.0).ok());
    Ok(seconds.map(|seconds| larder_model::Timestamp(seconds * 1000)))
}

#[cfg(test)]
mod tests {
    use super::content_type;

    #[test]
    fn unknown_extensions_are_binary() {
        assert_eq!(content_type("a/b.HTML"), "text/html");
        assert_eq!(content_type("a.tfrecord"), "binary/octet-stream");
        assert_eq!(content_type("html"), "binary/octet-stream");
    }
}
