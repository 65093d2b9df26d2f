//! The way to moto and back: what was accepted is handed on in S3's terms, and moto's answer is
//! put into the product's.

use super::{Asked, Digests, Product, Shared, digest};
use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use sha2::{Digest as _, Sha256};
use std::sync::PoisonError;

/// Who asks moto. It checks that there is a signature, not which; and takes the region from it.
const ASKER: &str = "AWS4-HMAC-SHA256 Credential=ORIGIN/20260101/us-east-1/s3/aws4_request, \
                     SignedHeaders=host, Signature=0";

/// Headers that hold tags, which OSS's clients send back in upper case.
const TAGS: [&str; 4] =
    ["if-match", "if-none-match", "x-amz-copy-source-if-match", "x-amz-copy-source-if-none-match"];

/// Asks moto, and answers as the product would.
pub(super) async fn relay(shared: &Shared, asked: Asked) -> Result<Response<Full<Bytes>>> {
    let request = outgoing(shared, &asked)?;
    let (head, body) = shared.client.request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    let mut headers = HeaderMap::new();
    for (name, value) in &head.headers {
        let framing = ["connection", "date", "server", "transfer-encoding"];
        if !shared.product.hides(name.as_str()) && !framing.contains(&name.as_str()) {
            headers.append(name.clone(), value.clone());
        }
    }
    describe(shared, &asked, head.status, &mut headers).await?;
    let body = if asked.reads_object() && head.status.is_success() {
        body
    } else {
        let body = rewrite(shared.product, &asked, head.status, body);
        if asked.head.method != Method::HEAD && headers.contains_key("content-length") {
            headers.insert("content-length", HeaderValue::from(body.len()));
        }
        body
    };
    let mut answer = Response::new(Full::new(body));
    (*answer.status_mut(), *answer.headers_mut()) = (head.status, headers);
    Ok(answer)
}

/// The request for moto: path-style, tags in lower case, without framing, without what moto's V2
/// listing knows and BOS's does not.
fn outgoing(shared: &Shared, asked: &Asked) -> Result<Request<Full<Bytes>>> {
    let mut path = String::from("/");
    if let Some(bucket) = &asked.bucket {
        path += bucket;
    }
    if let Some(key) = &asked.key {
        path = format!("{path}/{key}");
    }
    let query = asked.head.uri.query().unwrap_or_default();
    let dropped = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        let unknown = ["continuation-token", "fetch-owner"].contains(&name);
        !(name.starts_with("X-Amz-") || shared.product == Product::Bos && unknown)
    };
    let query: Vec<&str> =
        query.split('&').filter(|pair| !pair.is_empty()).filter(dropped).collect();
    let target = match query.is_empty() {
        true => path,
        false => format!("{path}?{}", query.join("&")),
    };
    let mut request = Request::builder()
        .method(&asked.head.method)
        .uri(format!("http://{}{target}", shared.upstream));
    let headers = request.headers_mut().context("a request for moto")?;
    for (name, value) in &asked.head.headers {
        let framing = ["host", "content-length", "connection", "expect", "transfer-encoding"];
        let ours = ["authorization", "x-amz-content-sha256", "x-amz-decoded-content-length"];
        if framing.contains(&name.as_str()) || ours.contains(&name.as_str()) {
            continue;
        }
        let mut value = value.clone();
        if name == "content-encoding" {
            let rest =
                value.to_str()?.split(',').map(str::trim).filter(|one| *one != "aws-chunked");
            let rest = rest.collect::<Vec<_>>().join(",");
            if rest.is_empty() {
                continue;
            }
            value = rest.parse()?;
        }
        if TAGS.contains(&name.as_str()) && shared.product == Product::Oss {
            value = value.to_str()?.to_ascii_lowercase().parse()?;
        }
        headers.append(name.clone(), value);
    }
    let body = match asked.has("uploadId") && asked.head.method == Method::POST {
        true => change_tags(&asked.body, str::to_ascii_lowercase),
        false => asked.body.clone(),
    };
    headers.insert("authorization", HeaderValue::from_static(ASKER));
    headers.insert("x-amz-content-sha256", hex::encode(Sha256::digest(&body)).parse()?);
    Ok(request.body(Full::new(body))?)
}

/// Tags as the product writes them, and its own headers about objects.
async fn describe(
    shared: &Shared,
    asked: &Asked,
    status: StatusCode,
    headers: &mut HeaderMap,
) -> Result<()> {
    let tag = headers.get("etag").map(|tag| tag.to_str().map(str::to_owned)).transpose()?;
    if let (Product::Oss, Some(tag)) = (shared.product, &tag) {
        headers.insert("etag", tag.to_ascii_uppercase().parse()?);
    }
    let Some(key) = asked.key.as_ref().filter(|_| status.is_success()) else { return Ok(()) };
    let writes = asked.head.method == Method::PUT && !asked.has("acl");
    let completes = asked.head.method == Method::POST && asked.has("uploadId");
    let digests = if writes && !asked.head.headers.contains_key("x-amz-copy-source") {
        Some(Digests::of(&asked.body))
    } else if writes && asked.has("uploadId") {
        None
    } else if writes || completes || asked.reads_object() {
        digests(shared, asked.bucket.as_deref().unwrap_or_default(), key, tag.as_deref()).await?
    } else {
        return Ok(());
    };
    match shared.product {
        Product::Oss => {
            if let Some(digests) = digests {
                headers.insert("x-oss-hash-crc64ecma", digests.crc64.to_string().parse()?);
            }
            if asked.reads_object() {
                let parts = tag.is_some_and(|tag| tag.contains('-'));
                let kind = if parts { "Multipart" } else { "Normal" };
                headers.insert("x-oss-object-type", HeaderValue::from_static(kind));
                headers.insert("x-oss-storage-class", HeaderValue::from_static("Standard"));
            }
        }
        Product::Bos => {
            let whole = status != StatusCode::PARTIAL_CONTENT;
            if let Some(digests) = digests.filter(|_| whole) {
                let text = digest::base64(&digests.crc32.to_be_bytes());
                headers.insert("x-amz-checksum-crc32", text.parse()?);
            }
        }
    }
    Ok(())
}

/// The checksums of an object as it is at moto; none if it is of another tag by now.
async fn digests(
    shared: &Shared,
    bucket: &str,
    key: &str,
    tag: Option<&str>,
) -> Result<Option<Digests>> {
    let known =
        |tag: &str| shared.digests.lock().unwrap_or_else(PoisonError::into_inner).get(tag).copied();
    if let Some(found) = tag.and_then(known) {
        return Ok(Some(found));
    }
    let uri = format!("http://{}/{bucket}/{key}", shared.upstream);
    let request = Request::get(uri).header("authorization", ASKER);
    let request = tag.iter().fold(request, |request, tag| request.header("if-match", *tag));
    let answer = shared.client.request(request.body(Full::default())?).await?;
    if !answer.status().is_success() {
        return Ok(None);
    }
    let tag = answer.headers().get("etag").and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let found = Digests::of(&answer.into_body().collect().await?.to_bytes());
    if let Some(tag) = tag {
        shared.digests.lock().unwrap_or_else(PoisonError::into_inner).insert(tag, found);
    }
    Ok(Some(found))
}

/// XML as the product writes it.
fn rewrite(product: Product, asked: &Asked, status: StatusCode, body: Bytes) -> Bytes {
    if status.is_client_error() || status.is_server_error() {
        let text = String::from_utf8_lossy(&body).into_owned();
        return product.finish_error(text, "0026-00000001").into();
    }
    let body = match product {
        Product::Oss => change_tags(&body, str::to_ascii_uppercase),
        Product::Bos => body,
    };
    if product == Product::Bos && asked.has("list-type") {
        // Truncated pages of V2 have been seen without a token.
        let text = String::from_utf8_lossy(&body).into_owned();
        let text = without(&text, "NextContinuationToken");
        return without(&text, "ContinuationToken").into();
    }
    body
}

/// The document without the elements of a name.
fn without(text: &str, name: &str) -> String {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = text;
    let mut kept = String::new();
    while let Some((before, behind)) = rest.split_once(&open) {
        kept += before;
        rest = behind.split_once(&close).map_or("", |(_, behind)| behind);
    }
    kept + rest
}

/// The document with the texts of its `ETag` elements changed, but for the names of entities.
fn change_tags(body: &Bytes, change: impl Fn(&str) -> String) -> Bytes {
    let Ok(text) = std::str::from_utf8(body) else { return body.clone() };
    let mut pieces = text.split("<ETag>");
    let mut changed = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (tag, rest) = piece.split_once("</ETag>").unwrap_or((piece, ""));
        let parts: Vec<String> = tag.split("&quot;").map(&change).collect();
        changed += &format!("<ETag>{}</ETag>{rest}", parts.join("&quot;"));
    }
    changed.into()
}

#[cfg(test)]
mod tests {
    use super::{change_tags, without};
    use bytes::Bytes;

    #[test]
    fn tags_change_and_entities_stay() {
        let body = Bytes::from_static(b"<A><ETag>&quot;ab-2&quot;</ETag><ETag>\"cd\"</ETag>ab</A>");
        let upper = change_tags(&body, str::to_ascii_uppercase);
        assert_eq!(upper, "<A><ETag>&quot;AB-2&quot;</ETag><ETag>\"CD\"</ETag>ab</A>");
        assert_eq!(change_tags(&upper, str::to_ascii_lowercase), body);
    }

    #[test]
    fn elements_are_cut_out() {
        assert_eq!(without("<A>1<B>x</B>2<B>y</B></A>", "B"), "<A>12</A>");
        assert_eq!(without("<A>1</A>", "B"), "<A>1</A>");
    }
}
