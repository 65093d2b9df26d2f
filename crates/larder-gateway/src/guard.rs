//! The request guard: everything that S3 refuses and s3s 0.14 does not, before s3s sees a request.
//!
//! s3s's SigV4 arithmetic is right, its policy is too open: it takes SigV2 and POST policies, does
//! not look at the region, honours `x-amz-*` headers that nobody signed (CVE-2026-54330), does not
//! cap a presign's life, and drops from the canonical request whatever SignedHeaders entry it does
//! not find, be it for its case or for a value that is no UTF-8.
//!
//! Invariant: a request that passes is either unsigned on a node that lets anybody in, or carries
//! exactly one AWS4-HMAC-SHA256 signature whose scope and time are ours and which covers `host` and
//! every `x-amz-*` header. Whether the signature is right is then for [`Signed::verify`] or s3s to
//! say. The guard changes nothing, so it cannot break a signed header.

mod form;
mod framing;
mod scope;
mod signature;
mod sigv4;

pub(crate) use signature::signature_mismatch;
pub(crate) use sigv4::{Signed, derive_key};

use crate::fault::Fault;
use crate::host::{self, Domains};
use crate::query::Query;
use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::uri::Authority;
use larder_model::Clock;
use std::sync::Arc;

/// What the node accepts.
pub(crate) struct Guard {
    /// Signing regions; the first is named to clients that signed for another. Never empty.
    pub(crate) regions: Vec<String>,
    /// Whether unsigned requests pass.
    pub(crate) anonymous: bool,
    /// Whether browsers' forms pass, whose signature is in the form.
    pub(crate) forms: bool,
    /// Base domains under which the node is known.
    pub(crate) domains: Domains,
    /// Tells the time that signatures are held against.
    pub(crate) clock: Arc<dyn Clock>,
}

/// A request that the guard has passed.
pub(crate) struct Passed<'p> {
    /// Its query, decoded.
    pub(crate) query: Query<'p>,
    /// Its Authorization header, if it has one; not verified yet.
    pub(crate) signed: Option<Signed<'p>>,
    /// Whether it is a form, which has not been read yet.
    pub(crate) form: bool,
}

/// Query parameters of a presigned URL, as S3 spells them.
const PRESIGN: [&str; 6] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
];

/// Query parameters of a presigned URL of Signature Version 2.
const PRESIGN_V2: [&str; 3] = ["AWSAccessKeyId", "Signature", "Expires"];

impl Guard {
    /// Passes a request on, or answers it. `bodiless`: no byte of a body will follow.
    pub(crate) fn check<'p>(&self, parts: &'p Parts, bodiless: bool) -> Result<Passed<'p>, Fault> {
        framing::check(parts, bodiless)?;
        let query = match parts.uri.query() {
            Some(query) => Query::parse(query).ok_or_else(Fault::invalid_uri)?,
            None => Query::default(),
        };
        let named = |names: &[&str]| {
            query.iter().any(|(name, _)| names.iter().any(|n| n.eq_ignore_ascii_case(name)))
        };
        let presigned = named(&PRESIGN);
        let mut authorization = parts.headers.get_all(AUTHORIZATION).iter();
        let form = framing::is_form_post(parts);
        if named(&PRESIGN_V2) || (form && !self.forms) {
            return Err(unsupported());
        }
        match (authorization.next(), authorization.next(), presigned) {
            (Some(_), Some(_), _) | (Some(_), _, true) => Err(two_kinds()),
            (Some(_), ..) | (.., true) if form => Err(two_kinds()),
            (Some(header), None, false) => {
                let signed = self.check_header(parts, header)?;
                Ok(Passed { query, signed: Some(signed), form })
            }
            (None, _, true) => {
                self.check_presign(parts, &query)?;
                Ok(Passed { query, signed: None, form })
            }
            (None, _, false) if self.anonymous => {
                self.check_near(parts)?;
                Ok(Passed { query, signed: None, form })
            }
            (None, _, false) if form => Ok(Passed { query, signed: None, form }),
            (None, _, false) => Err(Fault::access_denied()),
        }
    }
}

impl Guard {
    /// Whether an unsigned request names this machine. A web page can make its own name resolve to
    /// the loopback address, and a browser would then send it what anybody may read here.
    fn check_near(&self, parts: &Parts) -> Result<(), Fault> {
        let header = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = header.or(parts.uri.authority().map(Authority::as_str)).unwrap_or_default();
        if host::is_loopback(host) || self.domains.covers(host) {
            return Ok(());
        }
        Err(Fault::denied(
            "Unsigned requests are taken under the names of this machine only: use localhost, a \
             loopback address, or a name below listen.domains",
        ))
    }
}

fn unsupported() -> Fault {
    Fault::bad(
        "InvalidRequest",
        "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.",
    )
}

fn two_kinds() -> Fault {
    Fault::bad(
        "InvalidArgument",
        "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query \
         string parameter or the Authorization header should be specified",
    )
    .with("ArgumentName", "Authorization")
}
