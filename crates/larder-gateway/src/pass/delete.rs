//! DeleteObjects: every key is authorised by itself. Keys that the caller may not write become errors
//! of the result, and the rest is done.
//!
//! Where every key lies in one dataset and may be deleted, the document goes on as it came. Otherwise
//! each dataset's part goes on as a document of its own, and the results are put together.

use super::answer::{hold, reply, unreadable};
use super::headers::choose;
use super::place::{Alias, Place, origin_key, permit_key};
use super::reveal::error;
use crate::fault::Fault;
use crate::gateway::{Call, Reply};
use crate::operation::Row;
use crate::upload::{CONTENT_MD5, Purpose, content_md5, is_checksum};
use crate::xml::Xml;
use crate::xml::tree::Node;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use larder_engine::{Changes, PassRequest};
use larder_model::{Action, BucketName, Dataset, ObjectKey, Permit, RawBody, RawRequest};
use std::collections::HashSet;
use std::sync::Arc;

/// The most keys of one request (DeleteObjects in the S3 API Reference).
const MAX_KEYS: usize = 1000;

/// The most elements of a request or of a result: 1,000 entries of seven.
const MAX_NODES: usize = 8 * MAX_KEYS;

/// One entry of the request, by the client's key.
struct Entry {
    key: ObjectKey,
    node: Node,
}

/// What of the request lies in one dataset.
struct Share {
    permit: Permit,
    alias: Option<Alias>,
    entries: Vec<Entry>,
}

/// POST of a bucket with `delete`.
pub(super) async fn delete(
    call: &Call<'_>,
    row: &'static Row,
    bucket: &BucketName,
    asked: &HeaderMap,
    seen: &mut Option<Arc<Dataset>>,
) -> Result<Reply, Fault> {
    if call.rules.load().namespace.bucket(bucket).is_empty() {
        return Err(Fault::no_such_bucket(bucket.as_str()));
    }
    let mut headers = choose(asked, row)?;
    if !asked.contains_key(CONTENT_MD5)
        && !asked.contains_key("x-amz-trailer")
        && !asked.keys().any(is_checksum)
    {
        let text = "Missing required header for this request: Content-MD5";
        return Err(Fault::bad("InvalidRequest", text));
    }
    let (document, checksum) = call.intake.document(asked, Purpose::Document).await?;
    headers.extend(checksum);
    super::headers::strip_aws_chunked(&mut headers);
    let (entries, quiet) = parse(&document)?;
    let (shares, denied) = share(call, bucket, entries, seen)?;
    if let ([share], true) = (&shares[..], denied.is_empty())
        && share.alias.is_none()
    {
        return pass_whole(call, row, bucket, share, headers, document).await;
    }
    let mut result = Node { name: "DeleteResult".to_owned(), ..Node::default() };
    for share in &shares {
        delete_share(call, bucket, share, quiet, &headers, &mut result).await?;
    }
    for key in &denied {
        result.children.push(failure(key.as_str(), "AccessDenied", "Access Denied"));
    }
    let mut xml = Xml::new();
    result.write(&mut xml, true);
    Ok(Reply::xml(xml.finish()))
}

/// Reads the request: its entries, and whether only errors are to be told.
fn parse(document: &[u8]) -> Result<(Vec<Entry>, bool), Fault> {
    let root = Node::parse(document, MAX_NODES).filter(|root| root.name == "Delete");
    let mut root = root.ok_or_else(malformed)?;
    let quiet = root.child("Quiet").is_some_and(|text| text.trim().eq_ignore_ascii_case("true"));
    root.children.retain(|node| node.name == "Object");
    if root.children.is_empty() || root.children.len() > MAX_KEYS {
        return Err(malformed());
    }
    let entry = |node: Node| {
        let key = node.child("Key").filter(|key| !key.is_empty()).ok_or_else(malformed)?;
        let key = ObjectKey::new(key).map_err(|_| {
            Fault::bad("KeyTooLongError", "Your key is too long").with("MaxSizeAllowed", "1024")
        })?;
        Ok(Entry { key, node })
    };
    Ok((root.children.into_iter().map(entry).collect::<Result<_, Fault>>()?, quiet))
}

/// Sorts the entries by dataset; those without a permit are told by their keys.
fn share(
    call: &Call<'_>,
    bucket: &BucketName,
    entries: Vec<Entry>,
    seen: &mut Option<Arc<Dataset>>,
) -> Result<(Vec<Share>, Vec<ObjectKey>), Fault> {
    let mut shares: Vec<Share> = Vec::new();
    let mut denied = Vec::new();
    for entry in entries {
        let Ok(permit) = permit_key(call, bucket, &entry.key, Action::Write, seen) else {
            denied.push(entry.key);
            continue;
        };
        let alias = Alias::of(permit.dataset(), bucket);
        origin_key(alias.as_ref(), &entry.key)?;
        let name = &permit.dataset().name;
        match shares.iter_mut().find(|share| share.permit.dataset().name == *name) {
            Some(share) => share.entries.push(entry),
            None => shares.push(Share { permit, alias, entries: vec![entry] }),
        }
    }
    Ok((shares, denied))
}

/// The request as it came.
async fn pass_whole(
    call: &Call<'_>,
    row: &'static Row,
    bucket: &BucketName,
    share: &Share,
    headers: HeaderMap,
    document: Bytes,
) -> Result<Reply, Fault> {
    let keys = share.entries.iter().map(|entry| entry.key.clone()).collect();
    let request = request(share, bucket, headers, document, keys);
    let place = Place {
        permit: share.permit.clone(),
        bucket: share.permit.dataset().origin_bucket(bucket),
        key: None,
        alias: None,
    };
    let passed = super::send(call, &share.permit, request, None).await?;
    reply(call, row, &place, passed).await
}

/// One dataset's part, in a document of its own; its results are added to `result`.
async fn delete_share(
    call: &Call<'_>,
    bucket: &BucketName,
    share: &Share,
    quiet: bool,
    headers: &HeaderMap,
    result: &mut Node,
) -> Result<(), Fault> {
    let mut xml = Xml::new();
    xml.root("Delete");
    if quiet {
        xml.plain("Quiet", true);
    }
    let mut keys = Vec::with_capacity(share.entries.len());
    for entry in &share.entries {
        let key = origin_key(share.alias.as_ref(), &entry.key)?;
        xml.open("Object");
        xml.text("Key", key.as_str());
        for node in entry.node.children.iter().filter(|node| node.name != "Key") {
            node.write(&mut xml, false);
        }
        xml.close("Object");
        keys.push(key);
    }
    xml.close("Delete");
    let document = Bytes::from(xml.finish());
    // The client's digests are of the client's document, which has been verified.
    let mut headers = headers.clone();
    let sums: Vec<_> = headers.keys().filter(|name| is_checksum(name)).cloned().collect();
    for name in sums {
        headers.remove(name);
    }
    headers.remove("x-amz-sdk-checksum-algorithm");
    if let Ok(md5) = HeaderValue::try_from(content_md5(&document)) {
        headers.insert(CONTENT_MD5, md5);
    }
    let request = request(share, bucket, headers, document, keys);
    let aliased = share.alias.is_some();
    let passed = super::send(call, &share.permit, request, None).await?;
    let status = passed.status;
    let answer = hold(passed.body, aliased).await?;
    let answer = (status < 300).then_some(answer);
    collect(answer.as_deref(), share, result)
}

/// Adds what the origin answered; where it refused all, so the result says for each key.
fn collect(answer: Option<&[u8]>, share: &Share, result: &mut Node) -> Result<(), Fault> {
    let Some(document) = answer else {
        for entry in &share.entries {
            let text = "The origin refused the request for this key.";
            result.children.push(failure(entry.key.as_str(), "InternalError", text));
        }
        return Ok(());
    };
    let root = Node::parse(document, MAX_NODES).ok_or_else(unreadable)?;
    if root.name == "Error" {
        let code = root.child("Code").unwrap_or_default();
        let told = share.alias.as_ref().map(|alias| error(document, alias).1);
        let text = told.unwrap_or_else(|| root.child("Message").unwrap_or_default().to_owned());
        for entry in &share.entries {
            result.children.push(failure(entry.key.as_str(), code, &text));
        }
        return Ok(());
    }
    let asked: HashSet<&str> = share.entries.iter().map(|entry| entry.key.as_str()).collect();
    let hidden = share.alias.as_ref().map_or("", |alias| alias.hidden.as_str());
    for mut node in root.children {
        for child in node.children.iter_mut().filter(|child| child.name == "Key") {
            let key = child.text.strip_prefix(hidden).filter(|key| asked.contains(key));
            child.text = key.ok_or_else(unreadable)?.to_owned();
        }
        if let Some(alias) = &share.alias {
            let tells = |text: &str| text.contains(alias.origin_bucket.as_str());
            for child in node.children.iter_mut().filter(|c| c.name == "Message" && tells(&c.text))
            {
                child.text = "The origin refused the request.".to_owned();
            }
        }
        result.children.push(node);
    }
    Ok(())
}

fn request(
    share: &Share,
    bucket: &BucketName,
    headers: HeaderMap,
    document: Bytes,
    keys: Vec<ObjectKey>,
) -> PassRequest {
    let raw = RawRequest {
        method: http::Method::POST,
        bucket: Some(share.permit.dataset().origin_bucket(bucket)),
        key: None,
        query: vec![("delete".to_owned(), String::new())],
        headers,
        body: RawBody::Whole(document),
    };
    PassRequest { raw, changes: Changes::Objects(keys), source: None }
}

/// An `Error` entry of the result.
fn failure(key: &str, code: &str, message: &str) -> Node {
    let leaf = |name: &str, text: &str| Node {
        name: name.to_owned(),
        text: text.to_owned(),
        children: Vec::new(),
    };
    Node {
        name: "Error".to_owned(),
        text: String::new(),
        children: vec![leaf("Key", key), leaf("Code", code), leaf("Message", message)],
    }
}

fn malformed() -> Fault {
    Fault::new(
        StatusCode::BAD_REQUEST,
        "MalformedXML",
        "The XML you provided was not well-formed or did not validate against our published schema",
    )
}
