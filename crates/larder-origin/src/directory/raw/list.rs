//! Listings: buckets, objects, versions, uploads.

use super::super::DirectoryOrigin;
use super::super::upload::Pending;
use super::answer::{OWNER, invalid_argument, show, xml};
use super::ask::Ask;
use super::xml::Document;
use larder_model::{
    ListDialect, ListPage, ListRequest, ListedObject, Origin as _, OriginError, RawAnswer,
    Timestamp,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::borrow::Cow;
use std::time::UNIX_EPOCH;

/// Entries of one page (S3 API, ListObjects, ListMultipartUploads).
const PAGE_ITEMS: u32 = 1000;

/// What `encoding-type=url` leaves as it is.
const URL_KEPT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// How names are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Url,
}

/// What `encoding-type` asks for.
pub(super) fn encoding(ask: &Ask) -> Result<Encoding, OriginError> {
    match ask.param("encoding-type") {
        None | Some("") => Ok(Encoding::Plain),
        Some(name) if name.eq_ignore_ascii_case("url") => Ok(Encoding::Url),
        Some(_) => Err(invalid_argument("Invalid Encoding Method specified in Request")),
    }
}

impl Encoding {
    pub(super) fn show(self, name: &str) -> Cow<'_, str> {
        match self {
            Self::Plain => name.into(),
            Self::Url => utf8_percent_encode(name, URL_KEPT).into(),
        }
    }

    /// Says so in the answer.
    pub(super) fn tell(self, document: &mut Document) {
        document.maybe("EncodingType", (self == Self::Url).then_some("url"));
    }
}

impl DirectoryOrigin {
    pub(super) async fn show_buckets(&self) -> Result<RawAnswer, OriginError> {
        let buckets = self.all_buckets().await?;
        let mut document = Document::new("ListAllMyBucketsResult");
        document.inside("Owner", owner).inside("Buckets", |all| {
            for bucket in buckets {
                all.inside("Bucket", |inside| {
                    inside.text("Name", &bucket.name);
                    inside.text("CreationDate", show(bucket.created.unwrap_or_default()));
                });
            }
        });
        Ok(xml(document))
    }

    pub(super) async fn show_objects(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        let encoding = encoding(ask)?;
        let v2 = match ask.param("list-type") {
            None => false,
            Some("2") => true,
            Some(_) => return Err(invalid_argument("Invalid List Type specified in Request")),
        };
        let request = list_request(ask, if v2 { ListDialect::V2 } else { ListDialect::V1 })?;
        let shows_owner = !v2 || request.fetch_owner;
        let page = self.list_objects(request.clone()).await?;
        let mut document = Document::new("ListBucketResult");
        begin(&mut document, ask, &request, encoding)?;
        if v2 {
            document.maybe("ContinuationToken", request.token.as_deref());
            document.maybe("NextContinuationToken", page.next_token.as_deref());
            let start = request.start_after.as_deref().filter(|start| !start.is_empty());
            document.maybe("StartAfter", start.map(|start| encoding.show(start)));
            document.plain("KeyCount", page.objects.len() + page.common_prefixes.len());
        } else {
            document.text("Marker", encoding.show(request.marker.as_deref().unwrap_or("")));
            document.maybe("NextMarker", page.next_marker.as_deref().map(|m| encoding.show(m)));
        }
        document.plain("IsTruncated", page.truncated);
        for object in &page.objects {
            document.inside("Contents", |inside| {
                inside.text("Key", encoding.show(object.key.as_str()));
                describe(inside, object);
                if shows_owner {
                    inside.inside("Owner", owner);
                }
            });
        }
        prefixes(&mut document, &page.common_prefixes, encoding);
        Ok(xml(document))
    }

    /// Each object as its `null` version.
    pub(super) async fn show_versions(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        let encoding = encoding(ask)?;
        let marker = ask.param("key-marker").unwrap_or_default().to_owned();
        let version = ask.param("version-id-marker").unwrap_or_default();
        match version {
            "" => {}
            "null" if !marker.is_empty() => {}
            "null" => {
                let message = "A version-id marker cannot be specified without a key marker.";
                return Err(invalid_argument(message));
            }
            _ => return Err(invalid_argument("Invalid version id specified")),
        }
        let request =
            ListRequest { marker: Some(marker.clone()), ..list_request(ask, ListDialect::V1)? };
        let page = self.list_objects(request.clone()).await?;
        let mut document = Document::new("ListVersionsResult");
        begin(&mut document, ask, &request, encoding)?;
        document.text("KeyMarker", encoding.show(&marker)).text("VersionIdMarker", version);
        document.plain("IsTruncated", page.truncated);
        if page.truncated {
            let (key, is_prefix) = last(&page);
            document.text("NextKeyMarker", encoding.show(key));
            document.maybe("NextVersionIdMarker", (!is_prefix).then_some("null"));
        }
        for object in &page.objects {
            document.inside("Version", |inside| {
                inside.text("Key", encoding.show(object.key.as_str()));
                inside.text("VersionId", "null").plain("IsLatest", true);
                describe(inside, object);
                inside.inside("Owner", owner);
            });
        }
        prefixes(&mut document, &page.common_prefixes, encoding);
        Ok(xml(document))
    }

    pub(super) async fn show_uploads(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        let encoding = encoding(ask)?;
        let most = ask.number("max-uploads", PAGE_ITEMS)?.min(PAGE_ITEMS);
        let pending = self.pending(ask.bucket()?).await?;
        let page = Uploads::page(ask, &pending, usize::try_from(most).unwrap_or(0));
        let text = |name| ask.param(name).unwrap_or_default();
        let mut document = Document::new("ListMultipartUploadsResult");
        document.text("Bucket", ask.bucket()?);
        document.text("KeyMarker", encoding.show(text("key-marker")));
        document.text("UploadIdMarker", text("upload-id-marker"));
        if let Some((key, id)) = &page.next {
            document.text("NextKeyMarker", encoding.show(key)).text("NextUploadIdMarker", id);
        }
        document.text("Prefix", encoding.show(text("prefix")));
        let delimiter = ask.param("delimiter").filter(|delimiter| !delimiter.is_empty());
        document.maybe("Delimiter", delimiter.map(|delimiter| encoding.show(delimiter)));
        document.plain("MaxUploads", most).plain("IsTruncated", page.next.is_some());
        encoding.tell(&mut document);
        for upload in page.uploads {
            document.inside("Upload", |inside| {
                inside.text("Key", encoding.show(&upload.key)).text("UploadId", upload.id.as_str());
                inside.inside("Initiator", owner).inside("Owner", owner);
                inside.text("StorageClass", "STANDARD").text("Initiated", began(upload));
                if let Some((algorithm, kind)) = upload.checksum {
                    inside.text("ChecksumAlgorithm", algorithm.name());
                    inside.text("ChecksumType", kind.name());
                }
            });
        }
        prefixes(&mut document, &page.prefixes, encoding);
        Ok(xml(document))
    }

    pub(super) async fn show_location(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        let location = self.bucket_location(ask.bucket()?).await?;
        let mut document = Document::new("LocationConstraint");
        document.verbatim(&location);
        Ok(xml(document))
    }
}

/// One page of uploads.
struct Uploads<'p> {
    uploads: Vec<&'p Pending>,
    prefixes: Vec<String>,
    /// Key and upload, or prefix and nothing, where the next page begins.
    next: Option<(String, String)>,
}

impl<'p> Uploads<'p> {
    fn page(ask: &Ask, pending: &'p [Pending], most: usize) -> Self {
        let text = |name| ask.param(name).unwrap_or_default();
        let (prefix, delimiter) = (text("prefix"), text("delimiter"));
        let (key_marker, id_marker) = (text("key-marker"), text("upload-id-marker"));
        let mut page = Self { uploads: Vec::new(), prefixes: Vec::new(), next: None };
        let mut last = None;
        for upload in pending {
            let Some(rest) = upload.key.strip_prefix(prefix) else { continue };
            let rolled = rest.find(delimiter).filter(|_| !delimiter.is_empty());
            let common = rolled.map(|at| &upload.key[..prefix.len() + at + delimiter.len()]);
            let is_behind = match common {
                Some(common) => {
                    common > key_marker && page.prefixes.last().is_none_or(|last| last != common)
                }
                None if upload.key == key_marker && !id_marker.is_empty() => {
                    upload.id.as_str() > id_marker
                }
                None => upload.key.as_str() > key_marker,
            };
            if !is_behind {
                continue;
            }
            if page.uploads.len() + page.prefixes.len() == most {
                page.next = last;
                break;
            }
            if let Some(common) = common {
                page.prefixes.push(common.to_owned());
                last = Some((common.to_owned(), String::new()));
            } else {
                page.uploads.push(upload);
                last = Some((upload.key.clone(), upload.id.to_string()));
            }
        }
        page
    }
}

fn began(upload: &Pending) -> String {
    let age = upload.began.duration_since(UNIX_EPOCH).unwrap_or_default();
    show(Timestamp(u64::try_from(age.as_millis()).unwrap_or_default()))
}

fn list_request(ask: &Ask, dialect: ListDialect) -> Result<ListRequest, OriginError> {
    let text = |name| ask.param(name).map(str::to_owned);
    Ok(ListRequest {
        bucket: ask.bucket()?.clone(),
        dialect,
        prefix: text("prefix").unwrap_or_default(),
        delimiter: text("delimiter").filter(|delimiter| !delimiter.is_empty()),
        max_keys: ask.number("max-keys", PAGE_ITEMS)?.min(PAGE_ITEMS),
        marker: text("marker"),
        token: text("continuation-token"),
        start_after: text("start-after"),
        fetch_owner: ask.param("fetch-owner").is_some_and(|v| v.eq_ignore_ascii_case("true")),
    })
}

/// What every listing of keys begins with.
fn begin(
    document: &mut Document,
    ask: &Ask,
    request: &ListRequest,
    encoding: Encoding,
) -> Result<(), OriginError> {
    document.text("Name", ask.bucket()?).text("Prefix", encoding.show(&request.prefix));
    document.maybe("Delimiter", request.delimiter.as_deref().map(|d| encoding.show(d)));
    document.plain("MaxKeys", request.max_keys);
    encoding.tell(document);
    Ok(())
}

fn describe(document: &mut Document, object: &ListedObject) {
    document.maybe("LastModified", object.last_modified.map(show));
    document.maybe("ETag", object.etag.as_ref().map(larder_model::ETag::as_str));
    document.plain("Size", object.size);
    document.maybe("StorageClass", object.storage_class.as_deref());
}

fn owner(document: &mut Document) {
    document.text("ID", OWNER).text("DisplayName", OWNER);
}

fn prefixes(document: &mut Document, prefixes: &[String], encoding: Encoding) {
    for prefix in prefixes {
        document.inside("CommonPrefixes", |inside| {
            inside.text("Prefix", encoding.show(prefix));
        });
    }
}

/// The last name of a page, and whether it is a common prefix.
fn last(page: &ListPage) -> (&str, bool) {
    let object = page.objects.last().map_or("", |object| object.key.as_str());
    let prefix = page.common_prefixes.last().map_or("", String::as_str);
    if prefix > object { (prefix, true) } else { (object, false) }
}
