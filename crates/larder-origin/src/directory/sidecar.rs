//! The headers that came with a PUT, stored beside the object.
//!
//! Invariant: a sidecar is bound to its file by inode and modification time, which the rename that
//! makes the file visible leaves as they are. It is written before the file is visible, so no
//! reader sees an object without its headers; a file that somebody else puts there has none.

use super::key::{PRIVATE, Stamp};
use super::open::absent;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use md5::{Digest as _, Md5};
use percent_encoding::{CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Headers in a form that JSON holds: name, and value percent-encoded where it is not ASCII.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct StoredHeaders(Vec<(String, String)>);

const ESCAPED: percent_encoding::AsciiSet = CONTROLS.add(b'%');

impl StoredHeaders {
    /// What of a PUT's headers belongs to the object.
    pub(super) fn of(request: &HeaderMap) -> Self {
        let content = [
            CACHE_CONTROL,
            CONTENT_DISPOSITION,
            CONTENT_ENCODING,
            CONTENT_LANGUAGE,
            CONTENT_TYPE,
            EXPIRES,
        ];
        let stored = request
            .iter()
            .filter(|(name, _)| content.contains(name) || name.as_str().starts_with("x-amz-meta-"))
            .map(|(name, value)| {
                (name.to_string(), percent_encode(value.as_bytes(), &ESCAPED).to_string())
            })
            .collect();
        Self(stored)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn to_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.0 {
            let value: Vec<u8> = percent_decode_str(value).collect();
            if let (Ok(name), Ok(value)) =
                (HeaderName::try_from(name.as_str()), HeaderValue::from_bytes(&value))
            {
                headers.append(name, value);
            }
        }
        headers
    }
}

/// The headers stored for `key` in the state `stamp`; none when there are none.
pub(super) fn load(bucket: &Path, key: &str, stamp: &Stamp) -> io::Result<HeaderMap> {
    let Some(bytes) = absent(fs::read(path(bucket, key, stamp)))? else {
        return Ok(HeaderMap::new());
    };
    let stored: StoredHeaders = serde_json::from_slice(&bytes)?;
    Ok(stored.to_headers())
}

/// Stores the headers of a file that is about to become visible as `key`.
pub(super) fn store(
    bucket: &Path,
    key: &str,
    stamp: &Stamp,
    headers: &StoredHeaders,
) -> io::Result<()> {
    if headers.is_empty() {
        return Ok(());
    }
    let path = path(bucket, key, stamp);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let bytes = serde_json::to_vec(headers)?;
    // The name is the file's alone, and the file not visible yet: nobody reads a half-written one.
    fs::write(&path, bytes)?;
    fs::File::open(&path)?.sync_all()
}

/// Forgets the headers of a state that is gone.
pub(super) fn remove(bucket: &Path, key: &str, stamp: &Stamp) -> io::Result<()> {
    absent(fs::remove_file(path(bucket, key, stamp))).map(drop)
}

fn path(bucket: &Path, key: &str, stamp: &Stamp) -> PathBuf {
    let key = hex::encode(Md5::digest(key.as_bytes()));
    let (seconds, nanos) = stamp.modified;
    let name = format!("{key}.{:x}.{seconds}.{nanos}", stamp.inode);
    // Spread over 256 folders, so that none of them grows with the bucket.
    bucket.join(PRIVATE).join("meta").join(&key[..2]).join(name)
}

#[cfg(test)]
mod tests {
    use super::StoredHeaders;
    use http::{HeaderMap, HeaderValue};

    #[test]
    fn any_header_value_survives() {
        let mut headers = HeaderMap::new();
        headers.append("x-amz-meta-a", HeaderValue::from_bytes(b"caf\xe9 %41\t\"").unwrap());
        headers.append("x-amz-meta-a", HeaderValue::from_static("two"));
        headers.append("content-type", HeaderValue::from_static("text/plain"));
        let text = serde_json::to_string(&StoredHeaders::of(&headers)).unwrap();
        let stored: StoredHeaders = serde_json::from_str(&text).unwrap();
        assert_eq!(stored.to_headers(), headers);
    }

    #[test]
    fn only_the_objects_own_headers_are_stored() {
        let mut headers = HeaderMap::new();
        headers.append("authorization", HeaderValue::from_static("AWS4-HMAC-SHA256"));
        headers.append("x-amz-security-token", HeaderValue::from_static("secret"));
        assert!(StoredHeaders::of(&headers).is_empty());
    }
}
