//! The questions that change nothing.

use super::{Answer, Ask, Asker, Reply, told};
use crate::s3::Addressing;
use http::{HeaderName, Method};
use larder_model::{BucketName, ObjectKey};
use percent_encoding::percent_decode_str;

/// Codes that say that it is the keys, or their signature, that are refused.
const REFUSED_KEYS: [&str; 8] = [
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "InvalidSecurityToken",
    "InvalidSecurity",
    "ExpiredToken",
    "SecurityTokenExpired",
    "RequestTimeTooSkewed",
];

/// An object to ask about.
pub(super) struct Object {
    pub(super) key: ObjectKey,
    pub(super) version_id: Option<String>,
}

impl Asker {
    /// Finds a bucket, and how and in which region to ask for it; sets the wire so. `None` when there
    /// is no way, which the findings explain.
    pub(super) async fn introduce(&mut self) -> Option<BucketName> {
        let bucket = match self.survey.bucket.clone() {
            Some(bucket) => bucket,
            None => self.first_bucket().await?,
        };
        self.survey.bucket = Some(bucket.clone());
        let configured = self.wire.endpoint.addressing;
        let (mut working, mut notes) = (Vec::new(), Vec::new());
        let mut last = None;
        for (addressing, subject) in [
            (Addressing::Path, "bucket in the path"),
            (Addressing::Virtual, "bucket in the host name"),
        ] {
            self.wire.endpoint.addressing = addressing;
            if addressing == Addressing::Virtual
                && !self.wire.endpoint.takes_as_host(bucket.as_str())
            {
                let told = "the endpoint is an address, or the bucket's name is no host name";
                notes.push((subject, Answer::Unknown, told.to_owned()));
                continue;
            }
            let reply = self.page(&bucket, &[("list-type", "2")]).await;
            let works = reply.as_ref().is_ok_and(is_page);
            let answer = if works { Answer::Yes } else { Answer::No };
            notes.push((subject, answer, told(&reply)));
            if works {
                working.push(addressing);
            }
            if works || last.is_none() {
                last = Some(reply);
            }
        }
        let chosen = working.iter().find(|works| **works == configured).or(working.first());
        self.wire.endpoint.addressing = chosen.copied().unwrap_or(configured);
        if let Some(reply) = &last {
            self.judge_keys(reply);
        }
        for (subject, answer, detail) in notes {
            self.note(subject, answer, detail);
        }
        chosen.is_some().then_some(bucket)
    }

    async fn first_bucket(&mut self) -> Option<BucketName> {
        let reply = self.settle(&Ask::of(Method::GET, None, None)).await;
        let name = match &reply {
            Ok(reply) if reply.is_good() => reply.element("Name"),
            _ => {
                self.judge_keys(&reply);
                let told = format!("buckets cannot be listed: {}; name one", told(&reply));
                self.note("bucket", Answer::Unknown, told);
                return None;
            }
        };
        let bucket = name.and_then(|name| BucketName::new(name).ok());
        if bucket.is_none() {
            self.judge_keys(&reply);
            self.note("bucket", Answer::Unknown, "the keys own none; name one");
        }
        bucket
    }

    /// Asks, and once more for the region that the answer names.
    async fn settle(&mut self, ask: &Ask<'_>) -> Result<Reply, String> {
        let reply = self.ask(ask).await?;
        let elsewhere = matches!(reply.status, 301 | 307 | 400 | 403) && !reply.is_good();
        let region = reply
            .element("Region")
            .or_else(|| reply.header("x-amz-bucket-region").map(str::to_owned))
            .filter(|region| elsewhere && *region != self.wire.region && is_region(region));
        let Some(region) = region else { return Ok(reply) };
        let before = std::mem::replace(&mut self.wire.region, region);
        let again = self.ask(ask).await?;
        if !again.is_good() {
            self.wire.region = before;
            return Ok(reply);
        }
        Ok(again)
    }

    async fn page(
        &mut self,
        bucket: &BucketName,
        more: &[(&'static str, &str)],
    ) -> Result<Reply, String> {
        let mut query = more.to_vec();
        query.extend([("max-keys", "1"), ("encoding-type", "url")]);
        let ask = Ask { query: &query, ..Ask::of(Method::GET, Some(bucket), None) };
        self.settle(&ask).await
    }

    fn judge_keys(&mut self, reply: &Result<Reply, String>) {
        let (answers, keys) = match reply {
            Err(_) => (Answer::No, Answer::Unknown),
            Ok(reply) if REFUSED_KEYS.contains(&reply.code.as_str()) => (Answer::Yes, Answer::No),
            Ok(reply) if reply.is_good() || reply.code == "AccessDenied" => {
                (Answer::Yes, Answer::Yes)
            }
            Ok(_) => (Answer::Yes, Answer::Unknown),
        };
        self.note("answers", answers, told(reply));
        self.note("keys accepted", keys, told(reply));
    }

    /// Where the bucket is, by the origin's own word.
    pub(super) async fn place(&mut self, bucket: &BucketName) {
        let head = self.ask(&Ask::of(Method::HEAD, Some(bucket), None)).await;
        let location =
            Ask { query: &[("location", "")], ..Ask::of(Method::GET, Some(bucket), None) };
        let location = self.ask(&location).await;
        let header =
            head.ok().and_then(|reply| reply.header("x-amz-bucket-region").map(str::to_owned));
        let element = location.ok().filter(Reply::is_good).and_then(|reply| location_of(&reply));
        let named = header.or(element).filter(|region| is_region(region));
        let used = self.wire.region.clone();
        let told = match named {
            Some(named) => format!("{used:?}; the origin names {named:?}"),
            None => format!("{used:?}; the origin names none"),
        };
        self.note("signing region accepted", Answer::Yes, told);
    }

    /// Whether pages can be followed.
    pub(super) async fn list(&mut self, bucket: &BucketName) {
        for (subject, version, next) in [
            ("ListObjectsV2 with tokens", &[("list-type", "2")][..], "NextContinuationToken"),
            ("ListObjects", &[], "NextMarker"),
        ] {
            let reply = self.page(bucket, version).await;
            let (answer, detail) = match &reply {
                Ok(reply) if is_page(reply) => {
                    let truncated = reply.element("IsTruncated").as_deref() == Some("true");
                    let followed = reply.element(next).is_some() || version.is_empty();
                    match (truncated, followed) {
                        (true, true) => (Answer::Yes, "a page of one key goes on".to_owned()),
                        (true, false) => (Answer::No, "truncated, without a token".to_owned()),
                        (false, _) => {
                            (Answer::Unknown, "the bucket has less than two objects".to_owned())
                        }
                    }
                }
                reply => (Answer::No, told(reply)),
            };
            self.note(subject, answer, detail);
        }
    }

    /// The first object of the bucket.
    pub(super) async fn find(&mut self, bucket: &BucketName) -> Option<Object> {
        let reply = self.page(bucket, &[]).await.ok()?;
        let key = reply.element("Key")?;
        let key = match reply.element("EncodingType").as_deref() {
            Some("url") => {
                percent_decode_str(&key.replace('+', " ")).decode_utf8().ok()?.into_owned()
            }
            // What XML has escaped is rare in keys, and then some other object will do as well.
            _ => key,
        };
        Some(Object { key: ObjectKey::new(key).ok()?, version_id: None })
    }

    /// What the answers about one object look like.
    pub(super) async fn read(&mut self, bucket: &BucketName, object: Option<Object>) {
        let Some(Object { key, version_id }) = object else {
            self.note("If-Match on GET", Answer::Unknown, "the bucket is empty; allow writing");
            return;
        };
        let head = Ask {
            headers: &[("x-amz-checksum-mode", "ENABLED")],
            ..Ask::of(Method::HEAD, Some(bucket), Some(&key))
        };
        let head = self.ask(&head).await;
        let plain = self.ask(&Ask::of(Method::HEAD, Some(bucket), Some(&key))).await;
        self.condition(bucket, &key).await;
        match &head {
            Ok(reply) if reply.is_good() => {
                let told = checksums(reply);
                let detail = if told.is_empty() { "taken, none told".to_owned() } else { told };
                self.note("x-amz-checksum-mode", Answer::Yes, detail);
            }
            reply => self.note("x-amz-checksum-mode", Answer::No, told(reply)),
        }
        let Ok(reply) = plain else { return };
        let version = reply.header("x-amz-version-id").map(str::to_owned).or(version_id);
        let has_version = version.as_deref().is_some_and(|id| id != "null");
        let detail =
            if has_version { "told with objects" } else { "none told: no versioning here" };
        self.note_if("version ids", has_version, detail);
        let (answer, detail) = letter_case(reply.header("etag"));
        self.note("ETag in lower case", answer, detail);
    }

    async fn condition(&mut self, bucket: &BucketName, key: &ObjectKey) {
        let range = ("range", "bytes=0-0");
        let wrong = Ask {
            headers: &[("if-match", "\"larder-probe-of-no-object\""), range],
            ..Ask::of(Method::GET, Some(bucket), Some(key))
        };
        let reply = self.ask(&wrong).await;
        let held = reply.as_ref().is_ok_and(|reply| reply.status == 412);
        let sent = reply.as_ref().is_ok_and(Reply::is_good);
        let answer = match (held, sent) {
            (true, _) => Answer::Yes,
            (_, true) => Answer::No,
            _ => Answer::Unknown,
        };
        self.note("If-Match on GET", answer, told(&reply));
    }
}

fn is_page(reply: &Reply) -> bool {
    // An endpoint that does not know the bucket in its host name lists buckets instead.
    reply.is_good() && contains(&reply.body, b"<ListBucketResult")
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn is_region(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=40).contains(&text.len()) && text.bytes().all(letter)
}

/// The text of `<LocationConstraint xmlns=…>`.
fn location_of(reply: &Reply) -> Option<String> {
    let text = std::str::from_utf8(&reply.body).ok()?;
    let (_, rest) = text.split_once("<LocationConstraint")?;
    let (_, rest) = rest.split_once('>')?;
    Some(rest.split_once('<')?.0.trim().to_owned())
}

fn checksums(reply: &Reply) -> String {
    let names = reply.headers.keys().map(HeaderName::as_str);
    let told = names.filter(|name| {
        name.starts_with("x-amz-checksum-") || name.ends_with("crc64ecma") || name.contains("crc32")
    });
    told.collect::<Vec<_>>().join(", ")
}

fn letter_case(etag: Option<&str>) -> (Answer, String) {
    let Some(etag) = etag else { return (Answer::Unknown, "no ETag".to_owned()) };
    let upper = etag.bytes().any(|byte| byte.is_ascii_uppercase());
    let lower = etag.bytes().any(|byte| byte.is_ascii_lowercase());
    let answer = match (upper, lower) {
        (true, _) => Answer::No,
        (_, true) => Answer::Yes,
        _ => Answer::Unknown,
    };
    (answer, etag.chars().take(80).collect())
}
