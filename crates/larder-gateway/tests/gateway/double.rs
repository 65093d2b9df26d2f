//! Objects in memory behind the `Reads` port. A key says how it behaves: `busy`, `down`, `changing`,
//! `gone`, `cut` and `slow` do as they are called, `streamed` comes in pieces.

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue};
use larder_engine::{
    Answer, Body, Changes, Head, PassRequest, Passed, ReadError, ReadRequest, Source,
};
use larder_gateway::Reads;
use larder_model::{
    Action, BucketEntry, BucketName, ByteRange, ETag, ErrorReply, ListDialect, ListPage,
    ListRequest, ListedObject, ObjectKey, ObjectMeta, OriginName, Permit, RawBody, Timestamp,
    Verdict,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// 2013-05-24 00:00:00.
pub(crate) const MODIFIED: &str = "Fri, 24 May 2013 00:00:00 GMT";

#[derive(Default)]
pub(crate) struct Double {
    pub(crate) objects: BTreeMap<(String, String), Bytes>,
    /// Keys that were read, and the job that read them.
    pub(crate) read: Mutex<Vec<(String, String)>>,
    /// How many list requests were made.
    pub(crate) lists: AtomicU64,
    /// The most entries of a page, whatever was asked for; 0 for no limit.
    pub(crate) page: u64,
    /// Lets the second half of `slow` go.
    pub(crate) gate: Arc<Notify>,
    /// What was passed on.
    pub(crate) passed: Mutex<Vec<Arrived>>,
    /// What is answered to it; 200 without.
    pub(crate) answers: Mutex<VecDeque<Canned>>,
}

impl Double {
    pub(crate) fn put(&mut self, bucket: &str, key: &str, bytes: impl Into<Bytes>) {
        self.objects.insert((bucket.to_owned(), key.to_owned()), bytes.into());
    }

    fn find(
        &self,
        permit: &Permit,
        request: &ReadRequest,
    ) -> Result<(ObjectMeta, Bytes), ReadError> {
        assert_eq!(permit.dataset().origin, request.name.origin);
        let key = request.name.key.as_str();
        self.read.lock().unwrap().push((key.to_owned(), request.job.to_string()));
        let file = key.rsplit('/').next().unwrap();
        match file {
            "busy" => {
                let retry_after = Duration::from_millis(2500);
                return Err(ReadError::Busy { reason: "test".to_owned(), retry_after });
            }
            "down" => {
                let origin = request.name.origin.clone();
                return Err(ReadError::Unreachable { origin, reason: "test".to_owned() });
            }
            "changing" => return Err(ReadError::Changed(request.name.clone())),
            "gone" => {
                return Err(not_found("<Error><Code>NoSuchKey</Code><Key>gone</Key></Error>"));
            }
            _ => {}
        }
        let at = (request.name.bucket.as_str().to_owned(), key.to_owned());
        let bytes = self.objects.get(&at).cloned().ok_or_else(|| not_found(""))?;
        let mut headers = HeaderMap::new();
        headers.insert("etag", HeaderValue::from_static("\"tag\""));
        headers.insert("last-modified", HeaderValue::from_static(MODIFIED));
        headers.insert("content-type", HeaderValue::from_static("image/jpeg"));
        headers.insert("cache-control", HeaderValue::from_static("max-age=60"));
        headers.insert("x-amz-meta-colour", HeaderValue::from_static("blue"));
        headers.insert("x-oss-hash-crc64ecma", HeaderValue::from_static("1234"));
        headers.insert("x-amz-checksum-crc32", HeaderValue::from_static("AAAAAA=="));
        headers.insert("x-amz-checksum-type", HeaderValue::from_static("FULL_OBJECT"));
        if let Some(part) = request.part_number {
            headers.insert("x-amz-mp-parts-count", HeaderValue::from(part));
        }
        let size = bytes.len() as u64;
        let meta = ObjectMeta { size, etag: ETag::new("\"tag\""), version_id: None, headers };
        match request.conditions.evaluate(&meta) {
            Verdict::Proceed => Ok((meta, bytes)),
            Verdict::NotModified => Err(ReadError::NotModified(Arc::new(meta))),
            Verdict::PreconditionFailed => Err(ReadError::PreconditionFailed(Arc::new(meta))),
        }
    }

    fn range(request: &ReadRequest, meta: &ObjectMeta) -> Result<Option<ByteRange>, ReadError> {
        let spec = request.range.filter(|_| request.conditions.range_applies(meta));
        let resolved = spec.map(|spec| spec.resolve(meta.size)).transpose();
        resolved.map_err(|e| ReadError::RangeNotSatisfiable { size: e.size })
    }
}

fn not_found(body: &'static str) -> ReadError {
    let mut headers = HeaderMap::new();
    headers.insert("x-oss-ec", HeaderValue::from_static("0026-00000001"));
    ReadError::Origin(ErrorReply {
        status: 404,
        code: "NoSuchKey".to_owned(),
        message: "The specified key does not exist.".to_owned(),
        headers,
        body: Bytes::from_static(body.as_bytes()),
    })
}

#[async_trait::async_trait]
impl Reads for Double {
    async fn head(&self, permit: &Permit, request: ReadRequest) -> Result<Head, ReadError> {
        let (meta, _) = self.find(permit, &request)?;
        let range = Self::range(&request, &meta)?;
        Ok(Head { meta: Arc::new(meta), range, source: Source::Disk })
    }

    fn get_now(&self, _permit: &Permit, _request: &ReadRequest) -> Option<Answer> {
        None
    }

    async fn get(&self, permit: &Permit, request: ReadRequest) -> Result<Answer, ReadError> {
        let (meta, bytes) = self.find(permit, &request)?;
        let range = Self::range(&request, &meta)?;
        let bytes = match range {
            Some(range) => bytes.slice(range.start() as usize..range.end() as usize),
            None => bytes,
        };
        let name = request.name.clone();
        let (head, tail) = (bytes.slice(..bytes.len() / 2), bytes.slice(bytes.len() / 2..));
        let body = match name.key.as_str().rsplit('/').next().unwrap() {
            "streamed" => Body::Stream(futures_util::stream::iter([Ok(head), Ok(tail)]).boxed()),
            "cut" => {
                let first = futures_util::stream::iter([Ok(head)]);
                // Gives the server the time to send what it has.
                let rest = futures_util::stream::once(async move {
                    for _ in 0..50 {
                        tokio::task::yield_now().await;
                    }
                    Err(ReadError::Changed(name))
                });
                Body::Stream(first.chain(rest).boxed())
            }
            "slow" => {
                let gate = self.gate.clone();
                let first = futures_util::stream::iter([Ok(head)]);
                let rest = futures_util::stream::once(async move {
                    gate.notified().await;
                    Ok(tail)
                });
                Body::Stream(first.chain(rest).boxed())
            }
            _ => Body::Full(bytes),
        };
        Ok(Answer { meta: Arc::new(meta), range, source: Source::Memory, body })
    }

    async fn list(&self, permit: &Permit, request: ListRequest) -> Result<ListPage, ReadError> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        assert_eq!(permit.dataset().origin.as_str(), "origin");
        let after = match request.dialect {
            ListDialect::V1 => request.marker.clone(),
            ListDialect::V2 => request.token.clone().or(request.start_after.clone()),
        };
        let after = after.unwrap_or_default();
        let limit = match self.page {
            0 => request.max_keys as usize,
            page => (request.max_keys as usize).min(page as usize),
        };
        let mut page = ListPage::default();
        let mut last = String::new();
        for ((bucket, key), bytes) in &self.objects {
            if bucket != request.bucket.as_str() || !key.starts_with(&request.prefix) {
                continue;
            }
            let rest = &key[request.prefix.len()..];
            let common = request.delimiter.as_ref().and_then(|d| {
                let at = rest.find(d.as_str())?;
                Some(key[..request.prefix.len() + at + d.len()].to_owned())
            });
            let entry = common.clone().unwrap_or_else(|| key.clone());
            let shown = page.common_prefixes.last() == Some(&entry);
            if *key <= after || entry <= after || shown {
                continue;
            }
            if page.objects.len() + page.common_prefixes.len() >= limit {
                page.truncated = true;
                break;
            }
            last = entry.clone();
            match common {
                Some(common) => page.common_prefixes.push(common),
                None => page.objects.push(listed(key, bytes.len())),
            }
        }
        if page.truncated {
            page.next_token = Some(last.clone());
            page.next_marker = request.delimiter.as_ref().map(|_| last);
        }
        Ok(page)
    }

    async fn list_buckets(&self, permit: &Permit) -> Result<Vec<BucketEntry>, ReadError> {
        assert_eq!(permit.dataset().origin, OriginName::new("origin").unwrap());
        let mut names: Vec<&String> = self.objects.keys().map(|(bucket, _)| bucket).collect();
        names.dedup();
        let created = Some(Timestamp(1_369_353_600_000));
        let entry = |name: &String| BucketEntry { name: BucketName::new(name).unwrap(), created };
        Ok(names.into_iter().map(entry).collect())
    }

    async fn head_bucket(&self, _: &Permit, bucket: &BucketName) -> Result<HeaderMap, ReadError> {
        if !self.objects.keys().any(|(name, _)| name == bucket.as_str()) {
            let mut reply = match not_found("") {
                ReadError::Origin(reply) => reply,
                other => return Err(other),
            };
            reply.code = "NoSuchBucket".to_owned();
            return Err(ReadError::Origin(reply));
        }
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-bucket-region", HeaderValue::from_static("cn-hangzhou"));
        Ok(headers)
    }

    async fn bucket_location(&self, _: &Permit, bucket: &BucketName) -> Result<String, ReadError> {
        Ok(if bucket.as_str() == "data" { "cn-hangzhou" } else { "" }.to_owned())
    }

    async fn pass(&self, permit: &Permit, request: PassRequest) -> Result<Passed, ReadError> {
        let PassRequest { raw, changes, source } = request;
        if changes != Changes::Nothing {
            assert_eq!(permit.action(), Action::Write, "{changes:?}");
        }
        let origin = permit.dataset().origin.clone();
        assert!(source.iter().all(|(permit, name)| name.origin == origin
            && permit.dataset().origin == origin
            && permit.action() == Action::Read));
        let canned = self.answers.lock().unwrap().pop_front();
        let (body, trailer) = match (raw.body, &canned) {
            (_, Some(Canned { early: true, .. })) => (Some(Vec::new()), None),
            (RawBody::Empty, _) => (Some(Vec::new()), None),
            (RawBody::Whole(bytes), _) => (Some(bytes.to_vec()), None),
            (RawBody::Stream { len, trailer, mut bytes, .. }, _) => {
                let mut whole = Vec::new();
                let mut broken = false;
                while let Some(frame) = bytes.next().await {
                    match frame {
                        Ok(frame) => whole.extend_from_slice(&frame),
                        Err(_) => broken = true,
                    }
                }
                assert!(broken || whole.len() as u64 == len);
                assert!(!broken || (whole.len() as u64) < len, "a broken body is never complete");
                let trailer = trailer.filter(|_| !broken).map(|trailer| {
                    let value = trailer.value.get().expect("filled before the end").clone();
                    (trailer.name.to_string(), value.to_str().unwrap().to_owned())
                });
                ((!broken).then_some(whole), trailer)
            }
        };
        let broken = body.is_none();
        self.passed.lock().unwrap().push(Arrived {
            method: raw.method.to_string(),
            path: format!(
                "/{}/{}",
                raw.bucket.as_ref().map_or("", |b| b.as_str()),
                raw.key.as_ref().map_or("", |k| k.as_str())
            ),
            query: raw.query,
            headers: raw.headers,
            body,
            trailer,
            changes,
            source: source.map(|(_, name)| name.to_string()),
        });
        if broken {
            return Err(ReadError::BodyBroken);
        }
        let Canned { status, headers, body, .. } = canned.unwrap_or_default();
        let headers = headers.iter().map(|(name, value)| {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        });
        let body = futures_util::stream::iter([Ok(Bytes::from(body))]).boxed();
        Ok(Passed { status, headers: headers.collect(), body })
    }
}

/// A passed request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) method: String,
    /// In the origin's names, not encoded.
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    /// `None` where it broke off.
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) trailer: Option<(String, String)>,
    pub(crate) changes: Changes,
    pub(crate) source: Option<String>,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone().unwrap()).unwrap()
    }
}

/// What a passed request is answered.
#[derive(Clone, Debug)]
pub(crate) struct Canned {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
    /// Before the body was read.
    pub(crate) early: bool,
}

impl Default for Canned {
    fn default() -> Self {
        let headers = vec![("etag", "\"written\"".to_owned()), ("content-length", "0".to_owned())];
        Self { status: 200, headers, body: String::new(), early: false }
    }
}

impl Canned {
    pub(crate) fn xml(status: u16, body: &str) -> Self {
        let headers = vec![
            ("content-type", "application/xml".to_owned()),
            ("content-length", body.len().to_string()),
            ("x-amz-request-id", "the origin's".to_owned()),
            ("location", "/hidden".to_owned()),
        ];
        Self { status, headers, body: body.to_owned(), early: false }
    }
}

impl Double {
    /// Answers the next passed request so.
    pub(crate) fn answer(&self, canned: Canned) {
        self.answers.lock().unwrap().push_back(canned);
    }

    /// What has been passed on since the last time.
    pub(crate) fn take(&self) -> Vec<Arrived> {
        std::mem::take(&mut *self.passed.lock().unwrap())
    }

    /// The one request that has been passed on.
    pub(crate) fn one(&self) -> Arrived {
        let mut all = self.take();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }
}

fn listed(key: &str, size: usize) -> ListedObject {
    ListedObject {
        key: ObjectKey::new(key).unwrap(),
        size: size as u64,
        etag: ETag::new("\"tag\""),
        last_modified: Some(Timestamp(1_369_353_600_000)),
        storage_class: None,
        owner: Some(larder_model::Owner { id: Some("o1".to_owned()), display_name: None }),
        checksum_algorithms: vec!["CRC32".to_owned()],
        checksum_type: None,
    }
}
