//! Pages of a directory origin's keys. Blocking.

use super::folder::Folders;
use super::key::Stamp;
use super::walk::{Item, Walk};
use crate::{error, token};
use larder_model::{
    ListDialect, ListPage, ListRequest, ListedObject, ObjectKey, OriginError, Timestamp,
};
use std::fs::Metadata;
use std::io;
use std::path::Path;

/// The most keys and prefixes of one page (S3 API, ListObjectsV2, MaxKeys).
const PAGE_ITEMS: usize = 1000;

/// Where a page begins: behind this key or prefix; empty for the beginning.
///
/// A common prefix counts as one item at its own place. So a marker inside of it has passed it.
pub(super) fn after(request: &ListRequest) -> Result<String, OriginError> {
    let after = match (request.dialect, &request.token) {
        (ListDialect::V1, _) => request.marker.clone(),
        (ListDialect::V2, None) => request.start_after.clone(),
        (ListDialect::V2, Some(token)) => Some(token::decode(token).ok_or_else(|| {
            let message = "The continuation token provided is incorrect.";
            OriginError::Refused(error::reply(400, "InvalidArgument", message))
        })?),
    };
    Ok(after.unwrap_or_default())
}

/// One page behind `after`.
pub(super) fn page(
    bucket: &Path,
    folders: &Folders,
    request: &ListRequest,
    after: &str,
) -> io::Result<ListPage> {
    let limit = usize::try_from(request.max_keys).unwrap_or(PAGE_ITEMS).min(PAGE_ITEMS);
    let mut page = ListPage::default();
    if limit == 0 {
        return Ok(page);
    }
    let delimiter = request.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());
    let mut walk = Walk::new(bucket, folders, &request.prefix, delimiter, after)?;
    let mut last = String::new();
    for _ in 0..limit {
        let Some(item) = walk.next()? else { return Ok(page) };
        item.name().clone_into(&mut last);
        match item {
            Item::Object(key, found) => page.objects.extend(listed(&key, &found)),
            Item::Prefix(prefix) => page.common_prefixes.push(prefix),
        }
    }
    page.truncated = walk.next()?.is_some();
    if page.truncated {
        match request.dialect {
            ListDialect::V2 => page.next_token = Some(token::encode(&last)),
            // Told only with a delimiter, as S3 does (S3 API, ListObjects, NextMarker).
            ListDialect::V1 => page.next_marker = delimiter.map(|_| last),
        }
    }
    Ok(page)
}

/// `None` for what is no key: a walk does not yield such a name.
fn listed(key: &str, found: &Metadata) -> Option<ListedObject> {
    let stamp = Stamp::of(found);
    Some(ListedObject {
        key: ObjectKey::new(key).ok()?,
        size: stamp.size,
        etag: stamp.etag(),
        last_modified: u64::try_from(stamp.modified.0).ok().map(|s| Timestamp(s * 1000)),
        storage_class: Some("STANDARD".to_owned()),
        owner: None,
        checksum_algorithms: Vec::new(),
        checksum_type: None,
    })
}
