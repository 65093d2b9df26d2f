//! POST Object: a browser's upload, whose form brings key, policy and signature before the file ("POST
//! Object" in the S3 API Reference). Off unless the configuration says otherwise.
//!
//! S3 learns the file's length at its end; an origin must be told it before. A short form is read
//! whole. Of a longer one the file must be the last part, as browsers, curl and the SDKs have it; where
//! it is not, the length that follows is wrong, and the upload is broken off.

mod multipart;
mod policy;

pub(crate) use multipart::Scanner;

use super::headers::choose;
use super::place::{Alias, origin_key, permit_key};
use super::{Fault, PassRequest, RawRequest, answer};
use crate::gateway::{Call, Reply};
use crate::operation::Row;
use crate::upload::{Intake, Upload, missing_length};
use crate::xml::Xml;
use crate::xml::tree::Node;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use larder_engine::Changes;
use larder_model::{Action, BucketName, Dataset, ObjectKey};
use multipart::{Malformed, end_of_file, parse_head, tail_bytes};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use policy::Policy;
use std::sync::Arc;
use time::OffsetDateTime;

/// A form up to this long is read whole.
const WHOLE_BYTES: u64 = 1 << 20;

/// A form whose file has begun.
pub(crate) struct Form {
    boundary: String,
    fields: Vec<(String, String)>,
    filename: String,
    /// What has been read of the file and of what follows it.
    rest: Bytes,
    /// How many bytes that is in all.
    left: u64,
}

impl Form {
    /// Reads the fields before the file.
    pub(crate) async fn begin(intake: &Intake, headers: &HeaderMap) -> Result<Self, Fault> {
        let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let boundary = kind.and_then(multipart::boundary).ok_or_else(malformed)?;
        let len = intake.len().ok_or_else(missing_length)?;
        let judge = |read: &[u8]| parse_head(read, &boundary).map_err(fault);
        let (head, read) = intake.read_until(judge).await?;
        let rest = read.slice(head.at..);
        let left = len.saturating_sub(head.at as u64);
        Ok(Self { boundary, fields: head.fields, filename: head.filename, rest, left })
    }

    /// A field by its name in lower case.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| &**value)
    }

    /// Every field at most once: two readers of the form might take different ones.
    fn check_once(&self) -> Result<(), Fault> {
        for (at, (name, _)) in self.fields.iter().enumerate() {
            if self.fields.iter().skip(at + 1).any(|(other, _)| other == name) {
                let text = "POST requires exactly one value for each field.";
                return Err(Fault::invalid_argument(text, name, ""));
            }
        }
        Ok(())
    }

    fn key(&self) -> Result<ObjectKey, Fault> {
        let key = self.get("key").filter(|key| !key.is_empty()).ok_or_else(|| {
            let text = "Bucket POST must contain a field named 'key'. If it is specified, please \
                        check the order of the fields.";
            Fault::invalid_argument(text, "key", "")
        })?;
        let key = key.replace("${filename}", &self.filename);
        ObjectKey::new(key).map_err(|_| {
            Fault::bad("KeyTooLongError", "Your key is too long").with("MaxSizeAllowed", "1024")
        })
    }

    /// The fields that are headers of a PutObject.
    fn headers(&self) -> Result<HeaderMap, Fault> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.fields {
            let invalid = || Fault::invalid_argument("This is no value of a header.", name, value);
            let (name, value) = match &**name {
                "acl" => ("x-amz-acl", value.clone()),
                "tagging" => ("x-amz-tagging", tags(value).ok_or_else(malformed_tags)?),
                "x-amz-signature" | "x-amz-credential" | "x-amz-algorithm" => continue,
                name => (name, value.clone()),
            };
            let Ok(name) = HeaderName::try_from(name) else { continue };
            headers.insert(name, HeaderValue::try_from(value).map_err(|_| invalid())?);
        }
        Ok(headers)
    }

    /// The file for the origin, and how long it is.
    async fn file(
        self,
        intake: &Intake,
        headers: &HeaderMap,
        policy: Option<&Policy>,
    ) -> Result<Upload, Fault> {
        let check = |len: u64| policy.map_or(Ok(()), |policy| policy.check_length(len));
        if self.left <= WHOLE_BYTES {
            let (left, begun) = (self.left, self.rest);
            let missing = left.saturating_sub(begun.len() as u64);
            let judge = |read: &[u8]| Ok((read.len() as u64 >= missing).then_some(()));
            let ((), more) = intake.read_until(judge).await?;
            let all = if more.is_empty() { begun } else { [begun, more].concat().into() };
            let end = end_of_file(&all, &self.boundary).ok_or_else(malformed)?;
            check(end as u64)?;
            return Upload::whole(all.slice(..end), headers);
        }
        let len = self.left.checked_sub(tail_bytes(&self.boundary)).ok_or_else(malformed)?;
        check(len)?;
        intake.file(self.rest, Scanner::new(&self.boundary), len, headers)
    }
}

/// Uploads what a form brings. `policy` is what the form's signer has allowed, `None` where nobody
/// has signed it.
pub(crate) async fn post(
    call: &Call<'_>,
    row: &'static Row,
    bucket: &BucketName,
    form: Form,
    now: OffsetDateTime,
    seen: &mut Option<Arc<Dataset>>,
) -> Result<Reply, Fault> {
    form.check_once()?;
    let policy = form.get("policy").map(Policy::parse).transpose()?;
    if let Some(policy) = &policy {
        policy.check(&form.fields, bucket.as_str(), now)?;
    }
    let key = form.key()?;
    let permit = permit_key(call, bucket, &key, Action::Write, seen)?;
    let asked = form.headers()?;
    let mut headers = choose(&asked, row)?;
    let after = After::of(&form, call, bucket, &key);
    let alias = Alias::of(permit.dataset(), bucket);
    let key = origin_key(alias.as_ref(), &key)?;
    let upload = form.file(call.intake, &asked, policy.as_ref()).await?;
    headers.extend(upload.checksum);
    let at_origin = permit.dataset().origin_bucket(bucket);
    let raw = RawRequest {
        method: Method::PUT,
        bucket: Some(at_origin.clone()),
        key: Some(key.clone()),
        query: Vec::new(),
        headers,
        body: upload.body,
    };
    let changes = Changes::Objects(vec![key.clone()]);
    let request = PassRequest { raw, changes, source: None };
    let passed = super::send(call, &permit, request, Some(&upload.slot)).await?;
    let place = super::Place { permit, bucket: at_origin, key: Some(key), alias };
    let reply = answer::reply(call, row, &place, passed).await?;
    Ok(if reply.status.is_success() { after.answer(reply) } else { reply })
}

/// What the client wants to hear of a success.
struct After {
    redirect: Option<String>,
    status: StatusCode,
    bucket: BucketName,
    key: ObjectKey,
    location: String,
}

impl After {
    fn of(form: &Form, call: &Call<'_>, bucket: &BucketName, key: &ObjectKey) -> Self {
        let redirect = form.get("success_action_redirect").or(form.get("redirect"));
        let web = |url: &&str| url.starts_with("http://") || url.starts_with("https://");
        let status = match form.get("success_action_status") {
            Some("200") => StatusCode::OK,
            Some("201") => StatusCode::CREATED,
            _ => StatusCode::NO_CONTENT,
        };
        let host = call.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
        let path = utf8_percent_encode(key.as_str(), NON_ALPHANUMERIC);
        let location = format!("http://{}/{bucket}/{path}", host.unwrap_or_default());
        let redirect = redirect.filter(web).map(str::to_owned);
        Self { redirect, status, bucket: bucket.clone(), key: key.clone(), location }
    }

    fn answer(self, reply: Reply) -> Reply {
        let Reply { mut headers, .. } = reply;
        headers.remove(CONTENT_LENGTH);
        headers.remove(CONTENT_TYPE);
        let etag = headers.get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default();
        if let Some(url) = self.redirect {
            let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
            let mark = if url.contains('?') { '&' } else { '?' };
            let url = format!(
                "{url}{mark}bucket={}&key={}&etag={}",
                self.bucket,
                encode(self.key.as_str()),
                encode(etag)
            );
            if let Ok(url) = HeaderValue::try_from(url) {
                headers.insert(LOCATION, url);
                return Reply { status: StatusCode::SEE_OTHER, headers, body: s3s::Body::empty() };
            }
        }
        let mut body = s3s::Body::empty();
        if self.status == StatusCode::CREATED {
            let mut xml = Xml::new();
            xml.open("PostResponse");
            xml.text("Location", &self.location);
            xml.text("Bucket", self.bucket.as_str());
            xml.text("Key", self.key.as_str());
            xml.text("ETag", etag);
            xml.close("PostResponse");
            body = s3s::Body::from(xml.finish());
            headers.insert(CONTENT_TYPE, crate::fault::XML_TYPE);
        }
        if let Ok(location) = HeaderValue::try_from(self.location) {
            headers.insert(LOCATION, location);
        }
        Reply { status: self.status, headers, body }
    }
}

/// The tags of a `Tagging` document, as `x-amz-tagging` has them.
fn tags(document: &str) -> Option<String> {
    let root = Node::parse(document.as_bytes(), 100).filter(|root| root.name == "Tagging")?;
    let set = root.children.iter().find(|node| node.name == "TagSet")?;
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let tag =
        |tag: &Node| Some(format!("{}={}", encode(tag.child("Key")?), encode(tag.child("Value")?)));
    let tags: Option<Vec<String>> = set.children.iter().map(tag).collect();
    Some(tags?.join("&"))
}

fn fault(malformed_form: Malformed) -> Fault {
    match malformed_form {
        Malformed::Syntax => malformed(),
        Malformed::NoFile => {
            let text = "POST requires exactly one file upload per request.";
            Fault::invalid_argument(text, "file", "0")
        }
        Malformed::TooLarge => Fault::bad(
            "MaxPostPreDataLengthExceededError",
            "Your POST request fields preceding the upload file were too large.",
        )
        .with("MaxPostPreDataLengthBytes", multipart::MAX_HEAD_BYTES.to_string()),
    }
}

fn malformed() -> Fault {
    Fault::bad(
        "MalformedPOSTRequest",
        "The body of your POST request is not well-formed multipart/form-data.",
    )
}

fn malformed_tags() -> Fault {
    Fault::bad("MalformedXML", "The field tagging does not hold a Tagging document")
}

/// A POST of a bucket that is no form.
pub(super) fn no_form() -> Fault {
    Fault::new(
        StatusCode::PRECONDITION_FAILED,
        "PreconditionFailed",
        "At least one of the pre-conditions you specified did not hold",
    )
    .with("Condition", "Bucket POST must be of the enclosure-type multipart/form-data")
}
