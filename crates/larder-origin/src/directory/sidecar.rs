//! The headers that came with a PUT, stored beside the object, with its checksum and its tags.
//!
//! Invariant: a sidecar is bound to its file by inode and modification time, which the rename that
//! makes the file visible leaves as they are. It is written before the file is visible, so no
//! reader sees an object without its headers; a file that somebody else puts there has none.

use super::checksum::{Algorithm, Kind, ObjectChecksum};
use super::key::{PRIVATE, Stamp};
use super::open::absent;
use super::temp::{Temp, private_folder};
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use md5::{Digest as _, Md5};
use percent_encoding::{CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Headers in a form that JSON holds: name, and value percent-encoded where it is not ASCII.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredHeaders(Vec<(String, String)>);

const ESCAPED: percent_encoding::AsciiSet = CONTROLS.add(b'%');

/// The tags in the form of the header of a PUT: `key=value&…`, URL-encoded.
const TAGGING: &str = "x-amz-tagging";
const CHECKSUM: &str = "x-amz-checksum-";
const CHECKSUM_TYPE: &str = "x-amz-checksum-type";

impl StoredHeaders {
    /// What of a PUT's headers belongs to the object. Checksum and tags do, too, but are stored
    /// when they have been checked.
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

    /// The same with this checksum in place of any other.
    pub(super) fn with_checksum(mut self, checksum: Option<&ObjectChecksum>) -> Self {
        self.0.retain(|(name, _)| !name.starts_with(CHECKSUM));
        if let Some(ObjectChecksum { algorithm, kind, text }) = checksum {
            self.0.push((algorithm.header().to_owned(), text.clone()));
            self.0.push((CHECKSUM_TYPE.to_owned(), kind.name().to_owned()));
        }
        self
    }

    /// The same with these tags in place of any other; `None` or none of them: without.
    pub(super) fn with_tagging(mut self, tagging: Option<String>) -> Self {
        self.0.retain(|(name, _)| name != TAGGING);
        if let Some(tagging) = tagging.filter(|tagging| !tagging.is_empty()) {
            self.0.push((
                TAGGING.to_owned(),
                percent_encode(tagging.as_bytes(), &ESCAPED).to_string(),
            ));
        }
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the object's answers have: all but checksum and tags.
    pub(super) fn to_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.0 {
            if name == TAGGING || name.starts_with(CHECKSUM) {
                continue;
            }
            let value: Vec<u8> = percent_decode_str(value).collect();
            if let (Ok(name), Ok(value)) =
                (HeaderName::try_from(name.as_str()), HeaderValue::from_bytes(&value))
            {
                headers.append(name, value);
            }
        }
        headers
    }

    pub(super) fn checksum(&self) -> Option<ObjectChecksum> {
        let kind = Kind::of_name(&self.value(CHECKSUM_TYPE)?)?;
        let stored = |algorithm: Algorithm| {
            let text = self.value(algorithm.header())?;
            Some(ObjectChecksum { algorithm, kind, text })
        };
        Algorithm::ALL.into_iter().find_map(stored)
    }

    pub(super) fn tagging(&self) -> Option<String> {
        self.value(TAGGING)
    }

    fn value(&self, wanted: &str) -> Option<String> {
        let (_, value) = self.0.iter().find(|(name, _)| name == wanted)?;
        percent_decode_str(value).decode_utf8().ok().map(Into::into)
    }
}

/// What is stored for `key` in the state `stamp`; nothing when there is nothing.
pub(super) fn load(bucket: &Path, key: &str, stamp: &Stamp) -> io::Result<StoredHeaders> {
    let Some(bytes) = absent(fs::read(path(bucket, key, stamp)))? else {
        return Ok(StoredHeaders::default());
    };
    Ok(serde_json::from_slice(&bytes)?)
}

/// Stores what belongs to a file that is about to become visible as `key`.
pub(super) fn store(
    bucket: &Path,
    key: &str,
    stamp: &Stamp,
    headers: &StoredHeaders,
) -> io::Result<()> {
    if headers.is_empty() {
        return Ok(());
    }
    replace(bucket, key, stamp, headers)
}

/// Stores it anew for a file that is visible already: a reader sees the old or the new.
pub(super) fn replace(
    bucket: &Path,
    key: &str,
    stamp: &Stamp,
    headers: &StoredHeaders,
) -> io::Result<()> {
    if headers.is_empty() {
        return remove(bucket, key, stamp);
    }
    let path = path(bucket, key, stamp);
    if let Some(spread) = path.parent().and_then(Path::file_name).and_then(|name| name.to_str()) {
        private_folder(bucket, &[FOLDER, spread])?;
    }
    let mut temp = Temp::create(bucket)?;
    temp.file.write_all(&serde_json::to_vec(headers)?)?;
    temp.file.sync_all()?;
    temp.rename(&path)
}

/// Forgets what belongs to a state that is gone.
pub(super) fn remove(bucket: &Path, key: &str, stamp: &Stamp) -> io::Result<()> {
    absent(fs::remove_file(path(bucket, key, stamp))).map(drop)
}

const FOLDER: &str = "meta";

fn path(bucket: &Path, key: &str, stamp: &Stamp) -> PathBuf {
    let key = hex::encode(Md5::digest(key.as_bytes()));
    let (seconds, nanos) = stamp.modified;
    let name = format!("{key}.{:x}.{seconds}.{nanos}", stamp.inode);
    // Spread over 256 folders, so that none of them grows with the bucket.
    bucket.join(PRIVATE).join(FOLDER).join(&key[..2]).join(name)
}

#[cfg(test)]
mod tests {
    use super::super::checksum::{Algorithm, Kind, ObjectChecksum};
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

    #[test]
    fn checksum_and_tags_are_kept_apart_and_replaced() {
        let mut headers = HeaderMap::new();
        headers.append("x-amz-meta-a", HeaderValue::from_static("b"));
        let sum = |text: &str| ObjectChecksum {
            algorithm: Algorithm::Sha1,
            kind: Kind::Composite,
            text: text.to_owned(),
        };
        let stored = StoredHeaders::of(&headers)
            .with_checksum(Some(&sum("old-1")))
            .with_checksum(Some(&sum("new-2")))
            .with_tagging(Some("old=".to_owned()))
            .with_tagging(Some("k=%C3%A9&l=".to_owned()));
        assert_eq!(stored.checksum(), Some(sum("new-2")));
        assert_eq!(stored.tagging().as_deref(), Some("k=%C3%A9&l="));
        assert_eq!(stored.to_headers(), headers);
        let bare = stored.with_checksum(None).with_tagging(None);
        assert_eq!(bare, StoredHeaders::of(&headers));
    }
}
