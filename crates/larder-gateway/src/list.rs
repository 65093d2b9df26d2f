//! ListObjects, both dialects: parsing, and the page as XML. What is in the page is [`walk`]'s.

mod walk;

use crate::fault::Fault;
use crate::gateway::{Call, Reply};
use crate::rules::View;
use crate::xml::Xml;
use larder_model::{ListDialect, ListedObject, Owner, Timestamp};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::borrow::Cow;
use walk::Page;

/// The most entries of one page.
const MAX_KEYS: u32 = 1000;

/// What `encoding-type=url` leaves as it is.
const URL_KEPT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// A listing as the client asked for it; keys are the client's.
pub(crate) struct Wish<'q> {
    pub(crate) dialect: ListDialect,
    pub(crate) prefix: &'q str,
    /// Never empty.
    pub(crate) delimiter: Option<&'q str>,
    pub(crate) max_keys: u32,
    pub(crate) marker: Option<&'q str>,
    pub(crate) token: Option<&'q str>,
    pub(crate) start_after: Option<&'q str>,
    pub(crate) fetch_owner: bool,
    encode: bool,
}

/// GET of a bucket.
pub(crate) async fn list(
    call: &Call<'_>,
    view: &View,
    dialect: ListDialect,
) -> Result<Reply, Fault> {
    let wish = Wish::parse(call, dialect)?;
    let page = walk::walk(call.reads, view, &wish).await?;
    Ok(Reply::xml(wish.render(view.bucket.as_str(), &page)))
}

impl<'q> Wish<'q> {
    fn parse(call: &Call<'q>, dialect: ListDialect) -> Result<Self, Fault> {
        let query = call.query;
        let encode = match query.get("encoding-type") {
            None | Some("") => false,
            Some("url") => true,
            Some(other) => {
                let text = "Invalid Encoding Method specified in Request";
                return Err(Fault::invalid_argument(text, "encoding-type", other));
            }
        };
        let v2 = dialect == ListDialect::V2;
        let token = query.get("continuation-token").filter(|_| v2);
        if token == Some("") {
            return Err(incorrect_token());
        }
        Ok(Self {
            dialect,
            prefix: query.get("prefix").unwrap_or_default(),
            delimiter: query.get("delimiter").filter(|delimiter| !delimiter.is_empty()),
            max_keys: parse_max_keys(query.get("max-keys"))?,
            marker: query.get("marker").filter(|marker| !v2 && !marker.is_empty()),
            token,
            start_after: query.get("start-after").filter(|start| v2 && !start.is_empty()),
            fetch_owner: query.get("fetch-owner").is_some_and(|v| v.eq_ignore_ascii_case("true")),
            encode,
        })
    }

    fn render(&self, bucket: &str, page: &Page) -> String {
        let mut xml = Xml::new();
        xml.root("ListBucketResult");
        xml.text("Name", bucket);
        xml.text("Prefix", &self.show(self.prefix));
        match self.dialect {
            ListDialect::V1 => {
                xml.text("Marker", &self.show(self.marker.unwrap_or_default()));
                if let Some(next) = &page.next_marker {
                    xml.text("NextMarker", &self.show(next));
                }
            }
            ListDialect::V2 => {
                if let Some(token) = self.token {
                    xml.text("ContinuationToken", token);
                }
                if let Some(next) = &page.next_token {
                    xml.text("NextContinuationToken", next);
                }
                if let Some(start) = self.start_after {
                    xml.text("StartAfter", &self.show(start));
                }
                xml.plain("KeyCount", page.objects.len() + page.common_prefixes.len());
            }
        }
        xml.plain("MaxKeys", self.max_keys);
        if let Some(delimiter) = self.delimiter {
            xml.text("Delimiter", &self.show(delimiter));
        }
        if self.encode {
            xml.text("EncodingType", "url");
        }
        xml.plain("IsTruncated", page.truncated);
        for object in &page.objects {
            self.render_object(&mut xml, object);
        }
        for prefix in &page.common_prefixes {
            xml.open("CommonPrefixes");
            xml.text("Prefix", &self.show(prefix));
            xml.close("CommonPrefixes");
        }
        xml.close("ListBucketResult");
        xml.finish()
    }

    fn render_object(&self, xml: &mut Xml, object: &ListedObject) {
        xml.open("Contents");
        xml.text("Key", &self.show(object.key.as_str()));
        if let Some(modified) = object.last_modified {
            xml.text("LastModified", &show_timestamp(modified));
        }
        if let Some(etag) = &object.etag {
            xml.text("ETag", etag.as_str());
        }
        for algorithm in &object.checksum_algorithms {
            xml.text("ChecksumAlgorithm", algorithm);
        }
        if let Some(kind) = &object.checksum_type {
            xml.text("ChecksumType", kind);
        }
        xml.plain("Size", object.size);
        if let Some(owner) = object.owner.as_ref().filter(|_| self.shows_owner()) {
            render_owner(xml, owner);
        }
        xml.text("StorageClass", object.storage_class.as_deref().unwrap_or("STANDARD"));
        xml.close("Contents");
    }

    fn shows_owner(&self) -> bool {
        self.dialect == ListDialect::V1 || self.fetch_owner
    }

    fn show<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.encode { utf8_percent_encode(text, URL_KEPT).into() } else { Cow::Borrowed(text) }
    }
}

fn render_owner(xml: &mut Xml, owner: &Owner) {
    xml.open("Owner");
    if let Some(id) = &owner.id {
        xml.text("ID", id);
    }
    if let Some(name) = &owner.display_name {
        xml.text("DisplayName", name);
    }
    xml.close("Owner");
}

fn parse_max_keys(text: Option<&str>) -> Result<u32, Fault> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(MAX_KEYS) };
    let fault = |message: &'static str| Fault::invalid_argument(message, "max-keys", text);
    match text.parse::<i64>() {
        Ok(keys @ 0..=0x7fff_ffff) => Ok(u32::try_from(keys).unwrap_or(MAX_KEYS).min(MAX_KEYS)),
        Ok(keys) if keys < 0 => {
            Err(fault("Argument maxKeys must be an integer between 0 and 2147483647"))
        }
        _ => Err(fault("Provided max-keys not an integer or within integer range")),
    }
}

/// 400 for a token that no page of ours handed out.
pub(crate) fn incorrect_token() -> Fault {
    Fault::bad("InvalidArgument", "The continuation token provided is incorrect")
        .with("ArgumentName", "continuation-token")
}

/// `2026-11-21T05:25:00.000Z`, as S3 shows times in listings.
pub(crate) fn show_timestamp(time: Timestamp) -> String {
    let nanos = i128::from(time.0) * 1_000_000;
    match time::OffsetDateTime::from_unix_timestamp_nanos(nanos) {
        Ok(t) => format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            t.year(),
            u8::from(t.month()),
            t.day(),
            t.hour(),
            t.minute(),
            t.second(),
            t.millisecond()
        ),
        Err(_) => "1970-01-01T00:00:00.000Z".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse_max_keys, show_timestamp};
    use larder_model::Timestamp;

    fn check(text: &str, expected: Option<u32>) {
        assert_eq!(parse_max_keys(Some(text)).ok(), expected, "{text}");
    }

    #[test]
    fn max_keys_is_an_integer_and_capped() {
        check("", Some(1000));
        check("0", Some(0));
        check("7", Some(7));
        check("5000", Some(1000));
        check("2147483647", Some(1000));
        check("2147483648", None);
        check("-1", None);
        check("ten", None);
    }

    #[test]
    fn times_have_milliseconds() {
        assert_eq!(show_timestamp(Timestamp(1_369_353_600_012)), "2013-05-24T00:00:00.012Z");
    }
}
