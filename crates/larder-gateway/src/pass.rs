//! Requests that go around the cache: writes, and reads of what is not cached. What an operation needs
//! and brings is in the table; here it is done.
//!
//! The order: grant, headers, source of a copy, then the body. So not a byte of a body is read for a
//! request that is refused for any other reason.
//!
//! Invariant: the origin gets nothing that the client has not signed or that was not verified, and
//! names only those objects that a [`Permit`] covers.

mod answer;
mod copy;
mod delete;
mod form;
mod headers;
mod place;
mod reveal;

pub(crate) use form::{Form, Scanner, post};
pub(crate) use headers::must_pass;

use crate::fault::Fault;
use crate::gateway::{Call, Reply};
use crate::operation::{Brings, Class, Row, Target, is_of_signature};
use crate::refusal::{Asked, read_fault};
use crate::upload::{Purpose, Slot, has_length, missing_length};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use larder_engine::{Changes, PassRequest, Passed};
use larder_model::{Dataset, Permit, RawBody, RawRequest};
use place::Place;
use std::borrow::Cow;
use std::sync::Arc;

/// The six parameters of a presigned URL's signature, which are no headers.
const SIGNATURE: [&str; 6] = [
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-signature",
    "x-amz-signedheaders",
];

/// Passes a request on and its answer back. `seen` becomes the dataset, for the metrics.
pub(crate) async fn pass(
    call: &Call<'_>,
    row: &'static Row,
    target: &Target,
    seen: &mut Option<Arc<Dataset>>,
) -> Result<Reply, Fault> {
    let asked = asked_headers(call)?;
    if let (Target::Bucket(bucket), "DeleteObjects") = (target, row.name) {
        return delete::delete(call, row, bucket, &asked, seen).await;
    }
    if row.name == "PostObject" {
        return Err(form::no_form());
    }
    let place = Place::find(call, row, target, seen)?;
    let mut headers = headers::choose(&asked, row)?;
    let source = match row.copies {
        true => Some(copy::find(call, &asked, &place, &mut headers)?),
        false => None,
    };
    let (body, slot) = body(call, row, &asked, &mut headers).await?;
    headers::strip_aws_chunked(&mut headers);
    let raw = RawRequest {
        method: call.method.clone(),
        bucket: Some(place.bucket.clone()),
        key: place.key.clone(),
        query: query(call, row, &place),
        headers,
        body,
    };
    let request = PassRequest { raw, changes: changes(row, &place), source };
    let passed = send(call, &place.permit, request, slot.as_ref()).await?;
    answer::reply(call, row, &place, passed).await
}

/// Asks the data path. Where the client's own body broke off, that is what it hears.
async fn send(
    call: &Call<'_>,
    permit: &Permit,
    request: PassRequest,
    slot: Option<&Slot>,
) -> Result<Passed, Fault> {
    let aliased = permit.dataset().alias.is_some();
    let passed = call.reads.pass(permit, request).await;
    if let Some(fault) = slot.and_then(Slot::fault) {
        return Err(fault);
    }
    let passed =
        passed.map_err(|error| read_fault(error, Asked { aliased, ..Asked::default() }))?;
    if slot.is_some_and(|slot| !slot.is_verified()) && passed.status < 300 {
        tracing::error!(id = %call.id, "the origin took a body before it was verified");
        return Err(Fault::unavailable(
            "ServiceUnavailable",
            "The origin answered before it had the whole body. Please try again.",
            std::time::Duration::from_secs(1),
        ));
    }
    Ok(passed)
}

/// The request's headers, and those that a presigned URL carries as parameters.
fn asked_headers<'c>(call: &Call<'c>) -> Result<Cow<'c, HeaderMap>, Fault> {
    let mut headers = Cow::Borrowed(call.headers);
    for (name, value) in call.query.iter().filter(|(name, _)| is_of_signature(name)) {
        let lower = name.to_ascii_lowercase();
        if lower == "x-id" || SIGNATURE.contains(&&*lower) {
            continue;
        }
        let invalid = || Fault::invalid_argument("This is no value of a header.", name, value);
        let name = HeaderName::try_from(lower).map_err(|_| invalid())?;
        let value = HeaderValue::try_from(value).map_err(|_| invalid())?;
        match headers.get(&name) {
            Some(other) if *other == value => {}
            Some(_) => {
                let text = format!("The header {name} and the parameter of its name differ");
                return Err(Fault::bad("InvalidRequest", text));
            }
            None => {
                headers.to_mut().insert(name, value);
            }
        }
    }
    Ok(headers)
}

/// The body for the origin, and where to learn what became of it.
async fn body(
    call: &Call<'_>,
    row: &Row,
    asked: &HeaderMap,
    headers: &mut HeaderMap,
) -> Result<(RawBody, Option<Slot>), Fault> {
    let purpose = match row.brings {
        Brings::Object => {
            if call.intake.is_empty() && !has_length(asked) {
                return Err(missing_length());
            }
            let upload = call.intake.object(asked).await?;
            headers.extend(upload.checksum);
            return Ok((upload.body, Some(upload.slot)));
        }
        Brings::Nothing if call.intake.is_empty() => return Ok((RawBody::Empty, None)),
        Brings::Nothing | Brings::Document => Purpose::Document,
        Brings::Completion => Purpose::Completion,
    };
    let (bytes, checksum) = call.intake.document(asked, purpose).await?;
    if row.brings == Brings::Nothing || bytes.is_empty() {
        return Ok((RawBody::Empty, None));
    }
    headers.extend(checksum);
    // S3 can be told to put what it restores into any bucket.
    let elsewhere = bytes.windows(14).any(|window| window == b"OutputLocation");
    if row.name == "RestoreObject" && elsewhere {
        return Err(Fault::not_implemented().with("Element", "OutputLocation"));
    }
    Ok((RawBody::Whole(bytes), None))
}

/// The parameters for the origin, in its names.
fn query(call: &Call<'_>, row: &Row, place: &Place) -> Vec<(String, String)> {
    let taken = |name: &str| row.marks.contains(&name) || row.takes.contains(&name);
    let lists = row.takes.contains(&"prefix");
    let hidden = place.alias.as_ref().map(|alias| alias.hidden.as_str()).filter(|_| lists);
    let pairs = call.query.iter().filter(|(name, _)| taken(name)).map(|(name, value)| {
        let value = match hidden {
            Some(hidden) if name == "prefix" || (name == "key-marker" && !value.is_empty()) => {
                format!("{hidden}{value}")
            }
            _ => value.to_owned(),
        };
        (name.to_owned(), value)
    });
    let mut pairs: Vec<_> = pairs.collect();
    if let Some(hidden) = hidden.filter(|_| !call.query.has("prefix")) {
        pairs.push(("prefix".to_owned(), hidden.to_owned()));
    }
    pairs
}

fn changes(row: &Row, place: &Place) -> Changes {
    match (row.class, &place.key) {
        (Class::Write, Some(key)) if row.lasting => Changes::Objects(vec![key.clone()]),
        (Class::BucketWrite, _) => Changes::Bucket,
        _ => Changes::Nothing,
    }
}

/// Whether a request's answer has no body, whatever the origin sends.
fn is_silent(method: &Method, status: http::StatusCode) -> bool {
    method == Method::HEAD
        || status == http::StatusCode::NO_CONTENT
        || status == http::StatusCode::NOT_MODIFIED
}
