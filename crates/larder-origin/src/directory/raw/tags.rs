//! Tags of an object: GET, PUT and DELETE of `?tagging`, and the header of a PUT.
//!
//! Stored in the object's sidecar, so they go with the file: when somebody else replaces or edits
//! it, it has none.

use super::super::open::Opened;
use super::super::put::{NotCommitted, find, or_refused};
use super::super::sidecar;
use super::super::{DirectoryOrigin, blocking, failed, key::Stamp, read, refused};
use super::answer::{empty, malformed_xml, xml};
use super::ask::Ask;
use super::body::Body;
use super::xml::{Document, Element};
use larder_model::{OriginError, RawAnswer};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::sync::{Arc, PoisonError};

/// The limits of S3 (User Guide, "Categorizing your storage using tags").
const TAGS: usize = 10;
const KEY_CHARS: usize = 128;
const VALUE_CHARS: usize = 256;

type Tag = (String, String);

/// Reads the form of the header `x-amz-tagging`.
pub(super) fn of_header(header: &str) -> Result<Vec<Tag>, OriginError> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        let text = percent_decode_str(&text).decode_utf8();
        let message = "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL \
            query parameters without tag name duplicates.";
        text.map(Into::into).map_err(|_| refused(400, "InvalidArgument", message))
    };
    let pairs = header.split('&').filter(|pair| !pair.is_empty());
    let tags: Result<Vec<Tag>, _> = pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(key)?, decode(value)?))
        })
        .collect();
    checked(tags?)
}

/// Writes the form of the header `x-amz-tagging`.
pub(super) fn to_header(tags: &[Tag]) -> String {
    let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pairs: Vec<_> =
        tags.iter().map(|(key, value)| format!("{}={}", encode(key), encode(value))).collect();
    pairs.join("&")
}

fn of_xml(root: &Element) -> Result<Vec<Tag>, OriginError> {
    let [set] = root.children(&["TagSet"])? else { return Err(malformed_xml()) };
    let tag = |tag: &Element| {
        tag.children(&["Key", "Value"])?;
        let (key, value) = (tag.text_of("Key")?, tag.text_of("Value")?);
        let both = key.zip(value).ok_or_else(malformed_xml)?;
        Ok((both.0.to_owned(), both.1.to_owned()))
    };
    let tags: Result<Vec<Tag>, _> = set.children(&["Tag"])?.iter().map(tag).collect();
    checked(tags?)
}

fn checked(tags: Vec<Tag>) -> Result<Vec<Tag>, OriginError> {
    let invalid = |message: &str| Err(refused(400, "InvalidTag", message));
    if tags.len() > TAGS {
        return Err(refused(400, "BadRequest", "Object tags cannot be greater than 10"));
    }
    for (at, (key, value)) in tags.iter().enumerate() {
        if key.is_empty() || key.chars().count() > KEY_CHARS || key.starts_with("aws:") {
            return invalid("The TagKey you have provided is invalid");
        }
        if value.chars().count() > VALUE_CHARS {
            return invalid("The TagValue you have provided is invalid");
        }
        if tags[..at].iter().any(|(other, _)| other == key) {
            return invalid("Cannot provide multiple Tags with the same key");
        }
    }
    Ok(tags)
}

impl DirectoryOrigin {
    pub(super) async fn get_tagging(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        let opened = self.open_object(ask).await?;
        let tags = opened.stored.tagging().map(|tags| of_header(&tags)).transpose()?;
        let mut document = Document::new("Tagging");
        document.inside("TagSet", |set| {
            for (key, value) in tags.unwrap_or_default() {
                set.inside("Tag", |tag| {
                    tag.text("Key", key).text("Value", value);
                });
            }
        });
        Ok(xml(document))
    }

    pub(super) async fn put_tagging(
        &self,
        ask: &Ask,
        body: Body,
    ) -> Result<RawAnswer, OriginError> {
        let tags = of_xml(&body.xml("Tagging").await?)?;
        self.tag(ask, to_header(&tags)).await?;
        Ok(empty(200))
    }

    pub(super) async fn delete_tagging(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        self.tag(ask, String::new()).await?;
        Ok(empty(204))
    }

    /// Gives the object these tags in place of its own.
    async fn tag(&self, ask: &Ask, tagging: String) -> Result<(), OriginError> {
        let name = ask.object()?;
        read::check_version(&name)?;
        let bucket = self.bucket(&name.bucket).await?;
        let (inner, key) = (Arc::clone(&self.0), name.key.clone());
        let work = move || {
            // Under the lock of writes: the object does not change between the look and the store.
            let _changing = inner.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((_, found)) = find(&bucket, key.as_str())? else {
                return or_refused(Err(NotCommitted::Refused(read::no_such_key())));
            };
            let stamp = Stamp::of(&found);
            let stored = sidecar::load(&bucket, key.as_str(), &stamp)?;
            let stored = stored.with_tagging(Some(tagging));
            sidecar::replace(&bucket, key.as_str(), &stamp, &stored).map(Ok)
        };
        let done = blocking(work).await;
        done.map_err(|error| failed(&self.0.name, "tag", &name, &error))?
    }

    /// The object that is asked for, open.
    pub(super) async fn open_object(&self, ask: &Ask) -> Result<Opened, OriginError> {
        let name = ask.object()?;
        let bucket = self.bucket(&name.bucket).await?;
        read::open(&self.0.name, &bucket, &name).await
    }
}

#[cfg(test)]
mod tests {
    use super::{of_header, to_header};

    #[test]
    fn the_header_is_read_and_written() {
        let tags = of_header("a=1&b+c=d%26e&f").unwrap();
        let expected = [("a", "1"), ("b c", "d&e"), ("f", "")];
        assert_eq!(tags, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
        assert_eq!(of_header(&to_header(&tags)).unwrap(), tags);
    }

    #[test]
    fn tags_beyond_the_limits_are_refused() {
        let many: Vec<_> = (0..11).map(|n| format!("{n}=")).collect();
        let long = "k".repeat(129);
        for header in [&many.join("&"), &long, "a=1&a=2", "=1", "aws:a=1", "%ff=1"] {
            assert!(of_header(header).is_err(), "{header}");
        }
        assert!(of_header(&format!("{}={}", "é".repeat(128), "é".repeat(256))).is_ok());
    }
}
