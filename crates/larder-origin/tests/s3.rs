//! The S3 origin against a scripted double: each case states what the origin answers, what comes
//! out, and exactly which requests were made.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics, also in its helpers")]

use bytes::Bytes;
use futures_util::StreamExt as _;
use larder_model::{
    BucketName, ByteRange, ETag, FetchRequest, Fetched, HeadRequest, ListDialect, ListRequest,
    ObjectKey, ObjectName, Origin, OriginError, OriginName, VersionId,
};
use larder_origin::{
    AccessKey, Addressing, Dialect, OriginLimits, S3Config, S3Origin, SharedCredentials,
};
use prometheus::Registry;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const SECRET: &str = "CANARY-SECRET-0123456789";
const TOKEN: &str = "CANARY-SESSION-TOKEN-0123456789";

/// What the double does with one request.
struct Step {
    bytes: Vec<u8>,
    then: Then,
}

#[derive(Clone, Copy)]
enum Then {
    Close,
    Reset,
    Hang,
}

fn answer(status: u16, headers: &str, body: &str) -> Step {
    let length = if headers.contains("content-length") || headers.contains("transfer-encoding") {
        String::new()
    } else {
        format!("content-length: {}\r\n", body.len())
    };
    let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{length}{headers}\r\n");
    Step { bytes: [head.as_bytes(), body.as_bytes()].concat(), then: Then::Close }
}

fn error(status: u16, headers: &str, code: &str, more: &str) -> Step {
    let body = format!("<Error><Code>{code}</Code><Message>told</Message>{more}</Error>");
    answer(status, headers, &body)
}

impl Step {
    fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }
}

/// One request as it arrived, its header names in lower case.
#[derive(Clone, Debug)]
struct Seen {
    line: String,
    headers: Vec<(String, String)>,
}

impl Seen {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

struct Double {
    origin: S3Origin,
    keys: SharedCredentials,
    registry: Registry,
    seen: Arc<Mutex<Vec<Seen>>>,
    server: JoinHandle<()>,
}

impl Drop for Double {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn limits() -> OriginLimits {
    OriginLimits {
        answer_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(5),
        attempts: 3,
        retry_time: Duration::from_secs(5),
        backoff: Duration::from_millis(1),
        resumes: 2,
        ..OriginLimits::default()
    }
}

impl Double {
    async fn start(steps: Vec<Step>) -> Self {
        Self::with(Dialect::S3, limits(), steps).await
    }

    async fn with(dialect: Dialect, limits: OriginLimits, steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        let script = Arc::new(Mutex::new(VecDeque::from(steps)));
        let server = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, Arc::clone(&script), Arc::clone(&record)));
            }
        });
        let keys = SharedCredentials::new(AccessKey {
            id: "FIRSTKEYID".into(),
            secret: SECRET.into(),
            session_token: Some(TOKEN.into()),
        });
        let registry = Registry::new();
        let config = S3Config {
            name: OriginName::new("double").unwrap(),
            dialect,
            endpoint: format!("http://127.0.0.1:{port}"),
            region: "us-east-1".into(),
            addressing: Some(Addressing::Path),
            credentials: keys.clone(),
            ca: None,
            limits,
        };
        let origin = S3Origin::new(config, &registry).unwrap();
        Self { origin, keys, registry, seen, server }
    }

    /// The requests so far, each as its Range header (`-` without).
    fn ranges(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|seen| seen.header("range").unwrap_or("-").to_owned()).collect()
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn counted(&self) -> Vec<(String, u64)> {
        let mut counted = Vec::new();
        for family in self.registry.gather() {
            for metric in family.get_metric() {
                let label = |name: &str| {
                    let pair = metric.get_label().iter().find(|pair| pair.name() == name);
                    pair.unwrap().value().to_owned()
                };
                let text =
                    format!("{} {} {}", label("origin"), label("operation"), label("status"));
                counted.push((text, metric.get_counter().get_value() as u64));
            }
        }
        counted.sort();
        counted
    }

    async fn get(
        &self,
        request: FetchRequest,
    ) -> Result<(Fetched, Result<Bytes, OriginError>), OriginError> {
        let mut fetched = self.origin.fetch(request).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = fetched.body.next().await {
            match piece {
                Ok(piece) => bytes.extend_from_slice(&piece),
                Err(error) => return Ok((fetched, Err(error))),
            }
        }
        Ok((fetched, Ok(bytes.into())))
    }
}

async fn serve(
    mut stream: TcpStream,
    script: Arc<Mutex<VecDeque<Step>>>,
    record: Arc<Mutex<Vec<Seen>>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let line = lines.next().unwrap().to_owned();
    let headers = lines
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    record.lock().unwrap().push(Seen { line, headers });
    let step = script.lock().unwrap().pop_front();
    let step = step.unwrap_or_else(|| answer(599, "", "the script has no more steps"));
    // The client may hang up at any time; that is its right.
    let _ = stream.write_all(&step.bytes).await;
    let _ = stream.flush().await;
    match step.then {
        Then::Close => drop(stream.shutdown().await),
        Then::Hang => std::future::pending().await,
        Then::Reset => {
            // Long enough for the bytes to be read: a reset discards what is under way.
            let deadline = Instant::now() + Duration::from_millis(50);
            while Instant::now() < deadline {
                tokio::task::yield_now().await;
            }
            stream.set_zero_linger().unwrap();
        }
    }
}

fn name(key: &str) -> ObjectName {
    ObjectName {
        origin: OriginName::new("double").unwrap(),
        bucket: BucketName::new("bucket").unwrap(),
        key: ObjectKey::new(key).unwrap(),
        version_id: None,
    }
}

fn fetch(range: Option<(u64, u64)>, if_match: Option<&str>) -> FetchRequest {
    FetchRequest {
        name: name("key"),
        range: range.and_then(|(a, b)| ByteRange::new(a, b)),
        if_match: if_match.and_then(ETag::new),
        part_number: None,
        checksums: false,
    }
}

const TAG: &str = "etag: \"AAbb\"\r\n";

#[tokio::test]
async fn an_answer_is_replayed_byte_for_byte() {
    let headers = "etag: \"AAbb\"\r\nx-amz-meta-Two: b\r\nx-amz-version-id: v7\r\n\
        x-amz-request-id: no\r\nx-oss-object-type: Normal\r\ncontent-type: text/odd\r\n\
        last-modified: Thu, 01 Jan 1970 00:16:40 GMT\r\nserver: no\r\n";
    let double = Double::start(vec![answer(200, headers, "0123456789")]).await;
    let (fetched, body) = double.get(fetch(None, None)).await.unwrap();
    assert_eq!(body.unwrap(), "0123456789");
    assert_eq!(fetched.range, ByteRange::new(0, 10));
    assert_eq!(fetched.meta.size, 10);
    assert_eq!(fetched.meta.etag.unwrap().as_str(), "\"AAbb\"");
    assert_eq!(fetched.meta.version_id.unwrap().as_str(), "v7");
    let mut names: Vec<_> = fetched.meta.headers.keys().map(ToString::to_string).collect();
    names.sort();
    let expected = [
        "content-type",
        "etag",
        "last-modified",
        "x-amz-meta-two",
        "x-amz-version-id",
        "x-oss-object-type",
    ];
    assert_eq!(names, expected);
    let seen = double.seen();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].line.starts_with("GET /bucket/key"), "{}", seen[0].line);
    assert_eq!(seen[0].header("x-amz-checksum-mode"), None);
    assert_eq!(double.counted(), [("double get 200".to_owned(), 1)]);
}

#[tokio::test]
async fn a_range_and_its_condition_are_sent_and_checked() {
    let step = answer(206, &format!("{TAG}content-range: bytes 2-4/10\r\n"), "234");
    let double = Double::start(vec![step]).await;
    let (fetched, body) = double.get(fetch(Some((2, 5)), Some("\"AAbb\""))).await.unwrap();
    assert_eq!(body.unwrap(), "234");
    assert_eq!((fetched.range, fetched.meta.size), (ByteRange::new(2, 5), 10));
    assert_eq!(double.ranges(), ["bytes=2-4"]);
    let seen = &double.seen()[0];
    assert_eq!(seen.header("if-match"), Some("\"AAbb\""));
    // Nothing that an origin might not know.
    let names = seen.headers.iter().map(|(name, _)| name.as_str());
    let theirs: Vec<_> = names.filter(|name| name.starts_with("x-amz-")).collect();
    for name in theirs {
        let known = ["x-amz-date", "x-amz-content-sha256", "x-amz-security-token"];
        assert!(known.contains(&name), "{name}");
    }
}

#[tokio::test]
async fn keys_reach_the_origin_as_they_are() {
    for (key, path) in [
        ("a//b", "/bucket/a//b"),
        ("/lead", "/bucket//lead"),
        ("..", "/bucket/.."),
        ("a/../b", "/bucket/a/../b"),
        ("a b+c%41", "/bucket/a%20b%2Bc%2541"),
    ] {
        let double = Double::start(vec![answer(200, TAG, "x")]).await;
        let request = FetchRequest { name: name(key), ..fetch(None, None) };
        double.get(request).await.unwrap().1.unwrap();
        let line = double.seen()[0].line.clone();
        let got = line.split(' ').nth(1).unwrap().split('?').next().unwrap().to_owned();
        assert_eq!(got, path);
    }
}

#[tokio::test]
async fn version_part_and_checksum_mode_are_sent() {
    let step = answer(
        206,
        &format!(
            "{TAG}content-range: bytes 5-9/10\r\nx-amz-mp-parts-count: 2\r\nx-amz-checksum-crc32: AAAAAA==\r\n"
        ),
        "56789",
    );
    let double = Double::start(vec![step]).await;
    let mut request = FetchRequest { part_number: Some(2), checksums: true, ..fetch(None, None) };
    request.name.version_id = Some(VersionId::new("v1").unwrap());
    let (fetched, body) = double.get(request).await.unwrap();
    // The checksum is wrong for these bytes: it is replayed, not validated.
    assert_eq!(body.unwrap(), "56789");
    assert_eq!(fetched.range, ByteRange::new(5, 10));
    assert_eq!(fetched.meta.headers["x-amz-mp-parts-count"], "2");
    let seen = &double.seen()[0];
    assert!(seen.line.contains("partNumber=2") && seen.line.contains("versionId=v1"));
    assert_eq!(seen.header("x-amz-checksum-mode"), Some("ENABLED"));
}

#[tokio::test]
async fn oss_is_not_asked_for_checksums() {
    let double = Double::with(Dialect::Oss, limits(), vec![answer(200, TAG, "x")]).await;
    let request = FetchRequest { checksums: true, ..fetch(None, None) };
    double.get(request).await.unwrap().1.unwrap();
    assert_eq!(double.seen()[0].header("x-amz-checksum-mode"), None);
}

#[tokio::test]
async fn a_whole_objects_checksum_is_held_to() {
    // Of "123456789"; a range does not tell the bytes that the checksum is of.
    let headers = |more: &str| format!("{TAG}x-oss-hash-crc64ecma: 11051210869376104954\r\n{more}");
    let range = "content-range: bytes 0-8/9\r\n";
    let part = "content-range: bytes 0-3/9\r\n";
    for (range, step, good) in [
        (None, answer(200, &headers(""), "123456789"), true),
        (None, answer(200, &headers(""), "123456780"), false),
        (Some((0, 100)), answer(206, &headers(range), "123456789"), true),
        (Some((0, 100)), answer(206, &headers(range), "023456789"), false),
        (Some((0, 4)), answer(206, &headers(part), "1234"), true),
        (Some((0, 4)), answer(206, &headers(part), "0000"), true),
    ] {
        let double = Double::with(Dialect::Oss, limits(), vec![step]).await;
        let (_, body) = double.get(fetch(range, None)).await.unwrap();
        match body {
            Ok(_) => assert!(good),
            Err(error) => assert!(!good && error.to_string().contains("checksum"), "{error}"),
        }
    }
    let cut = answer(200, &headers("content-length: 9\r\n"), "1234");
    let rest = answer(206, &headers("content-range: bytes 4-8/9\r\n"), "56789");
    let double = Double::with(Dialect::Oss, limits(), vec![cut, rest]).await;
    assert_eq!(double.get(fetch(None, None)).await.unwrap().1.unwrap(), "123456789");
}

#[tokio::test]
async fn a_500_is_asked_again() {
    let double =
        Double::start(vec![error(500, "", "InternalError", ""), answer(200, TAG, "fine")]).await;
    assert_eq!(double.get(fetch(None, None)).await.unwrap().1.unwrap(), "fine");
    let expected = [("double get 200".to_owned(), 1), ("double get 500".to_owned(), 1)];
    assert_eq!(double.counted(), expected);
}

#[tokio::test]
async fn a_lasting_500_is_unreachable_after_all_attempts() {
    let steps = (0..3).map(|_| error(500, "", "InternalError", "")).collect();
    let double = Double::start(steps).await;
    let failed = double.get(fetch(None, None)).await.err().unwrap();
    assert!(matches!(&failed, OriginError::Unreachable { reason, .. }
        if reason.contains("500 InternalError") && reason.contains("double:bucket/key")));
    assert_eq!(double.seen().len(), 3);
}

#[tokio::test]
async fn retry_after_is_kept() {
    let steps = vec![error(503, "retry-after: 1\r\n", "SlowDown", ""), answer(200, TAG, "fine")];
    let double = Double::start(steps).await;
    let begun = Instant::now();
    assert_eq!(double.get(fetch(None, None)).await.unwrap().1.unwrap(), "fine");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(double.seen().len(), 2);
}

#[tokio::test]
async fn a_long_retry_after_is_told_at_once() {
    let double = Double::start(vec![error(503, "retry-after: 60\r\n", "SlowDown", "")]).await;
    let failed = double.get(fetch(None, None)).await.err().unwrap();
    assert!(matches!(failed, OriginError::Busy { retry_after, .. } if retry_after.as_secs() == 60));
    assert_eq!(double.seen().len(), 1);
}

#[tokio::test]
async fn a_refused_connection_is_unreachable() {
    let double = Double::start(vec![]).await;
    double.server.abort();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !double.server.is_finished() && Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
    let failed = double.get(fetch(None, None)).await.err().unwrap();
    assert!(matches!(failed, OriginError::Unreachable { .. }), "{failed}");
    assert_eq!(double.counted(), [("double get error".to_owned(), 3)]);
}

#[tokio::test]
async fn a_body_cut_short_is_resumed_with_range_and_if_match() {
    for then in [Then::Close, Then::Reset] {
        let steps = vec![
            answer(200, &format!("{TAG}content-length: 10\r\n"), "0123").then(then),
            answer(206, &format!("{TAG}content-range: bytes 4-9/10\r\n"), "456789"),
        ];
        let double = Double::start(steps).await;
        assert_eq!(double.get(fetch(None, None)).await.unwrap().1.unwrap(), "0123456789");
        assert_eq!(double.ranges(), ["-", "bytes=4-9"]);
        assert_eq!(double.seen()[1].header("if-match"), Some("\"AAbb\""));
    }
}

#[tokio::test]
async fn a_ranged_body_cut_short_is_resumed_inside_its_range() {
    let steps = vec![
        answer(206, &format!("{TAG}content-length: 5\r\ncontent-range: bytes 2-6/10\r\n"), "23"),
        answer(206, &format!("{TAG}content-length: 3\r\ncontent-range: bytes 4-6/10\r\n"), "4"),
        answer(206, &format!("{TAG}content-range: bytes 5-6/10\r\n"), "56"),
    ];
    let double = Double::start(steps).await;
    assert_eq!(double.get(fetch(Some((2, 7)), None)).await.unwrap().1.unwrap(), "23456");
    assert_eq!(double.ranges(), ["bytes=2-6", "bytes=4-6", "bytes=5-6"]);
}

#[tokio::test]
async fn a_body_that_keeps_breaking_is_given_up() {
    let first = answer(200, &format!("{TAG}content-length: 10\r\n"), "01");
    let rest =
        || answer(206, &format!("{TAG}content-length: 8\r\ncontent-range: bytes 2-9/10\r\n"), "");
    let double = Double::start(vec![first, rest(), rest(), rest()]).await;
    let failed = double.get(fetch(None, None)).await.unwrap().1.unwrap_err();
    assert!(matches!(failed, OriginError::Unreachable { .. }), "{failed}");
    assert_eq!(double.seen().len(), 3);
}

#[tokio::test]
async fn a_tag_that_changes_in_mid_body_ends_the_body() {
    let cut = || answer(200, &format!("{TAG}content-length: 10\r\n"), "0123");
    // One origin honours If-Match, the other ignores it and sends the new version.
    for second in [
        error(412, "", "PreconditionFailed", ""),
        answer(206, "etag: \"new\"\r\ncontent-range: bytes 4-9/10\r\n", "NEWNEW"),
    ] {
        let double = Double::start(vec![cut(), second]).await;
        let failed = double.get(fetch(None, None)).await.unwrap().1.unwrap_err();
        assert!(matches!(failed, OriginError::VersionChanged), "{failed}");
        assert_eq!(double.seen().len(), 2);
    }
}

#[tokio::test]
async fn a_weak_or_missing_tag_is_not_resumed() {
    for tag in ["", "etag: W/\"a\"\r\n"] {
        let cut = answer(200, &format!("{tag}content-length: 10\r\n"), "0123");
        let double = Double::start(vec![cut]).await;
        let failed = double.get(fetch(None, None)).await.unwrap().1.unwrap_err();
        assert!(matches!(failed, OriginError::Unreachable { .. }), "{failed}");
        assert_eq!(double.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_chunked_body_is_held_to_its_content_range() {
    let chunked = |chunks: &str| {
        let headers = format!("{TAG}transfer-encoding: chunked\r\ncontent-range: bytes 0-3/10\r\n");
        answer(206, &headers, chunks)
    };
    let double = Double::start(vec![chunked("4\r\n0123\r\n0\r\n\r\n")]).await;
    assert_eq!(double.get(fetch(Some((0, 4)), None)).await.unwrap().1.unwrap(), "0123");
    for long in ["5\r\n01234\r\n0\r\n\r\n", "4\r\n0123\r\n1\r\n4\r\n0\r\n\r\n"] {
        let double = Double::start(vec![chunked(long)]).await;
        let failed = double.get(fetch(Some((0, 4)), None)).await.unwrap().1.unwrap_err();
        assert!(failed.to_string().contains("longer than promised"), "{failed}");
    }
    let rest = answer(206, &format!("{TAG}content-range: bytes 2-3/10\r\n"), "23");
    let double = Double::start(vec![chunked("2\r\n01\r\n0\r\n\r\n"), rest]).await;
    assert_eq!(double.get(fetch(Some((0, 4)), None)).await.unwrap().1.unwrap(), "0123");
}

#[tokio::test]
async fn an_unsatisfiable_range_tells_the_size() {
    for (headers, more) in
        [("content-range: bytes */0\r\n", ""), ("", "<ActualObjectSize>0</ActualObjectSize>")]
    {
        let double = Double::start(vec![error(416, headers, "InvalidRange", more)]).await;
        let failed = double.get(fetch(Some((0, 10)), None)).await.err().unwrap();
        assert!(matches!(&failed, OriginError::RangeNotSatisfiable { size: Some(0), reply }
            if reply.status == 416 && reply.code == "InvalidRange"));
    }
}

#[tokio::test]
async fn an_empty_object_has_no_range() {
    let double = Double::start(vec![answer(200, TAG, "")]).await;
    let (fetched, body) = double.get(fetch(None, None)).await.unwrap();
    assert_eq!((fetched.range, fetched.meta.size), (None, 0));
    assert_eq!(body.unwrap(), "");
}

#[tokio::test]
async fn a_failed_condition_is_a_changed_version() {
    let double = Double::start(vec![error(412, "", "PreconditionFailed", "")]).await;
    let failed = double.get(fetch(Some((0, 4)), Some("\"old\""))).await.err().unwrap();
    assert!(matches!(failed, OriginError::VersionChanged));
    assert_eq!(double.seen().len(), 1);
}

#[tokio::test]
async fn an_origin_without_if_match_is_caught_by_its_tag() {
    let double = Double::start(vec![answer(200, TAG, "0123456789")]).await;
    let failed = double.get(fetch(None, Some("\"old\""))).await.err().unwrap();
    assert!(matches!(failed, OriginError::VersionChanged));
}

#[tokio::test]
async fn wrong_bytes_are_never_taken_for_right_ones() {
    for step in [
        answer(206, &format!("{TAG}content-range: bytes 3-5/10\r\n"), "345"),
        answer(206, &format!("{TAG}content-range: bytes 2-3/10\r\n"), "23"),
        answer(206, &format!("{TAG}content-range: bytes 2-4/10\r\n"), "2345"),
        answer(206, TAG, "234"),
        answer(200, TAG, "0123456789"),
    ] {
        let double = Double::start(vec![step]).await;
        let failed = double.get(fetch(Some((2, 5)), None)).await.err().unwrap();
        assert!(matches!(failed, OriginError::Unreachable { .. }), "{failed}");
        assert_eq!(double.seen().len(), 1);
    }
}

#[tokio::test]
async fn an_ignored_range_from_the_start_is_cut() {
    let double = Double::start(vec![answer(200, TAG, "0123456789")]).await;
    let (fetched, body) = double.get(fetch(Some((0, 4)), None)).await.unwrap();
    assert_eq!((fetched.range, fetched.meta.size), (ByteRange::new(0, 4), 10));
    assert_eq!(body.unwrap(), "0123");
}

#[tokio::test]
async fn a_slow_first_byte_times_out_and_is_asked_again() {
    let hang = Step { bytes: Vec::new(), then: Then::Hang };
    let limits = OriginLimits { answer_timeout: Duration::from_millis(200), ..limits() };
    let double = Double::with(Dialect::S3, limits, vec![hang, answer(200, TAG, "fine")]).await;
    assert_eq!(double.get(fetch(None, None)).await.unwrap().1.unwrap(), "fine");
    let expected = [("double get 200".to_owned(), 1), ("double get error".to_owned(), 1)];
    assert_eq!(double.counted(), expected);
}

#[tokio::test]
async fn a_stalled_body_is_resumed() {
    let limits = OriginLimits { idle_timeout: Duration::from_millis(200), ..limits() };
    let steps = vec![
        answer(200, &format!("{TAG}content-length: 10\r\n"), "0123").then(Then::Hang),
        answer(206, &format!("{TAG}content-range: bytes 4-9/10\r\n"), "456789"),
    ];
    let double = Double::with(Dialect::S3, limits, steps).await;
    assert_eq!(double.get(fetch(None, None)).await.unwrap().1.unwrap(), "0123456789");
    assert_eq!(double.ranges(), ["-", "bytes=4-9"]);
}

#[tokio::test]
async fn errors_are_kept_as_they_came() {
    let missing = error(404, "x-amz-delete-marker: true\r\n", "NoSuchKey", "<Key>key</Key>");
    let double = Double::start(vec![missing]).await;
    let failed = double.get(fetch(None, None)).await.err().unwrap();
    let OriginError::NotFound(reply) = failed else { panic!("{failed}") };
    assert_eq!(
        (reply.status, reply.code.as_str(), reply.message.as_str()),
        (404, "NoSuchKey", "told")
    );
    assert_eq!(reply.headers["x-amz-delete-marker"], "true");
    assert!(reply.body.ends_with(b"<Key>key</Key></Error>"));

    let double = Double::start(vec![answer(404, "", "")]).await;
    let request = HeadRequest { name: name("key"), part_number: None, checksums: false };
    let failed = double.origin.head(request).await.unwrap_err();
    assert!(matches!(failed, OriginError::NotFound(reply) if reply.code.is_empty()));

    let double = Double::start(vec![answer(403, "", "not xml at all")]).await;
    let failed = double.get(fetch(None, None)).await.err().unwrap();
    assert!(matches!(failed, OriginError::Refused(reply) if reply.body == "not xml at all"));
}

#[tokio::test]
async fn our_keys_never_come_back_in_an_error() {
    let more = format!(
        "<AWSAccessKeyId>FIRSTKEYID</AWSAccessKeyId><CanonicalRequest>x-amz-security-token:{TOKEN}</CanonicalRequest>"
    );
    for code in ["SignatureDoesNotMatch", "AccessDenied"] {
        let double = Double::start(vec![error(403, "", code, &more)]).await;
        let failed = double.get(fetch(None, None)).await.err().unwrap();
        let text = format!("{failed} {failed:?}");
        assert!(!text.contains("FIRSTKEYID") && !text.contains("CANARY"), "{text}");
        let OriginError::Refused(reply) = failed else { panic!("{text}") };
        assert_eq!((reply.status, reply.code.as_str()), (403, "AccessDenied"));
    }
}

#[tokio::test]
async fn replaced_keys_sign_the_next_request() {
    let double = Double::start(vec![answer(200, TAG, "a"), answer(200, TAG, "b")]).await;
    double.get(fetch(None, None)).await.unwrap().1.unwrap();
    double.keys.replace(AccessKey {
        id: "SECONDKEYID".into(),
        secret: "other".into(),
        session_token: None,
    });
    double.get(fetch(None, None)).await.unwrap().1.unwrap();
    let seen = double.seen();
    assert!(seen[0].header("authorization").unwrap().contains("Credential=FIRSTKEYID/"));
    assert_eq!(seen[0].header("x-amz-security-token"), Some(TOKEN));
    assert!(seen[1].header("authorization").unwrap().contains("Credential=SECONDKEYID/"));
    assert_eq!(seen[1].header("x-amz-security-token"), None);
}

#[tokio::test]
async fn a_body_holds_its_place_in_flight_until_dropped() {
    let limits =
        OriginLimits { in_flight: 1, queue_timeout: Duration::from_millis(50), ..limits() };
    let steps = vec![answer(200, TAG, "a"), answer(200, TAG, "b")];
    let double = Double::with(Dialect::S3, limits, steps).await;
    let held = double.origin.fetch(fetch(None, None)).await.unwrap();
    let failed = double.get(fetch(None, None)).await.err().unwrap();
    assert!(matches!(failed, OriginError::Busy { .. }), "{failed}");
    drop(held);
    assert_eq!(double.get(fetch(None, None)).await.unwrap().1.unwrap(), "b");
}

#[tokio::test]
async fn a_head_tells_the_whole_objects_size() {
    let plain = answer(200, &format!("{TAG}content-length: 42\r\n"), "");
    let part =
        answer(206, &format!("{TAG}content-length: 5\r\ncontent-range: bytes 0-4/42\r\n"), "");
    let double = Double::start(vec![plain, part]).await;
    for part_number in [None, Some(1)] {
        let request = HeadRequest { name: name("key"), part_number, checksums: true };
        assert_eq!(double.origin.head(request).await.unwrap().size, 42);
    }
    assert_eq!(double.seen()[1].header("x-amz-checksum-mode"), Some("ENABLED"));
}

fn list(dialect: ListDialect, token: Option<&str>) -> ListRequest {
    ListRequest {
        bucket: BucketName::new("bucket").unwrap(),
        dialect,
        prefix: "p q/".into(),
        delimiter: Some("/".into()),
        max_keys: 2,
        marker: None,
        token: token.map(str::to_owned),
        start_after: None,
        fetch_owner: false,
    }
}

const PAGE: &str = "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>TRUNC</IsTruncated>MORE\
    <Contents><Key>p+q/a%2Bb%01</Key><Size>3</Size><ETag>&quot;AA&quot;</ETag>\
    <LastModified>1970-01-01T00:16:40.000Z</LastModified><StorageClass>STANDARD</StorageClass>\
    <Owner><ID>me</ID></Owner></Contents>\
    <CommonPrefixes><Prefix>p+q/c/</Prefix></CommonPrefixes></ListBucketResult>";

fn page(truncated: bool, more: &str) -> Step {
    let truncated = if truncated { "true" } else { "false" };
    answer(200, "", &PAGE.replace("TRUNC", truncated).replace("MORE", more))
}

#[tokio::test]
async fn a_page_is_asked_for_encoded_and_told_plain() {
    let more = "<NextContinuationToken>a+b%20</NextContinuationToken>";
    let double = Double::start(vec![page(true, more)]).await;
    let page = double.origin.list(list(ListDialect::V2, None)).await.unwrap();
    assert_eq!(page.objects[0].key.as_str(), "p q/a+b\u{1}");
    assert_eq!(page.objects[0].size, 3);
    assert_eq!(page.objects[0].etag.as_ref().unwrap().as_str(), "\"AA\"");
    assert_eq!(page.objects[0].last_modified.unwrap().0, 1_000_000);
    assert_eq!(page.common_prefixes, ["p q/c/"]);
    assert_eq!(page.next_token.as_deref(), Some("a+b%20"));
    let line = &double.seen()[0].line;
    for part in ["list-type=2", "encoding-type=url", "prefix=p%20q%2F", "max-keys=2"] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[tokio::test]
async fn a_truncated_page_without_a_token_goes_on_as_v1() {
    for dialect in [Dialect::S3, Dialect::Oss] {
        let steps = vec![page(true, ""), page(false, "")];
        let double = Double::with(dialect, limits(), steps).await;
        let first = double.origin.list(list(ListDialect::V2, None)).await.unwrap();
        let token = first.next_token.unwrap();
        let second = double.origin.list(list(ListDialect::V2, Some(&token))).await.unwrap();
        assert_eq!((second.truncated, second.next_token), (false, None));
        let seen = double.seen();
        assert!(seen[0].line.contains("list-type=2"), "{}", seen[0].line);
        assert!(!seen[1].line.contains("list-type"), "{}", seen[1].line);
        assert!(seen[1].line.contains("marker=p%20q%2Fc%2F"), "{}", seen[1].line);
    }
}

#[tokio::test]
async fn no_listing_goes_round_in_circles() {
    let again = "<NextContinuationToken>same</NextContinuationToken>";
    let marker = "<NextMarker>p+q/c/</NextMarker>";
    let v1 =
        |marker: &str| ListRequest { marker: Some(marker.into()), ..list(ListDialect::V1, None) };
    let after = ListRequest { start_after: Some("p q/c/".into()), ..list(ListDialect::V2, None) };
    for dialect in [Dialect::S3, Dialect::Oss] {
        for (step, request) in [
            (page(true, again), list(ListDialect::V2, Some("same"))),
            (page(true, ""), after.clone()),
            (page(true, marker), v1("p q/c/")),
            (page(true, ""), v1("p q/c/")),
        ] {
            let double = Double::with(dialect, limits(), vec![step]).await;
            let failed = double.origin.list(request).await.unwrap_err();
            assert!(failed.to_string().contains("leads nowhere"), "{failed}");
        }
    }
    let none = ListRequest { max_keys: 0, ..list(ListDialect::V2, None) };
    let empty = "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>";
    let double = Double::start(vec![answer(200, "", empty)]).await;
    assert!(double.origin.list(none).await.unwrap().objects.is_empty());
}

#[tokio::test]
async fn v1_pages_have_markers() {
    let double = Double::start(vec![page(true, "<NextMarker>p+q/c/</NextMarker>")]).await;
    let page = double.origin.list(list(ListDialect::V1, None)).await.unwrap();
    assert_eq!(page.next_marker.as_deref(), Some("p q/c/"));
    assert!(!double.seen()[0].line.contains("list-type"));
}

#[tokio::test]
async fn bos_is_listed_by_v1_with_tokens_of_ours() {
    let steps = vec![page(true, ""), page(false, "")];
    let double = Double::with(Dialect::Bos, limits(), steps).await;
    let first = double.origin.list(list(ListDialect::V2, None)).await.unwrap();
    assert_eq!(first.objects[0].owner, None);
    let token = first.next_token.unwrap();
    let second = double.origin.list(list(ListDialect::V2, Some(&token))).await.unwrap();
    assert_eq!((second.truncated, second.next_token), (false, None));
    let seen = double.seen();
    assert!(!seen[0].line.contains("list-type") && !seen[0].line.contains("marker"));
    assert!(seen[1].line.contains("marker=p%20q%2Fc%2F"), "{}", seen[1].line);
}

#[tokio::test]
async fn a_bos_page_that_leads_nowhere_is_an_error() {
    let double = Double::with(Dialect::Bos, limits(), vec![page(true, "")]).await;
    let failed =
        double.origin.list(list(ListDialect::V2, Some("larder-p%20q%2Fc%2F"))).await.unwrap_err();
    assert!(failed.to_string().contains("leads nowhere"), "{failed}");
}

#[tokio::test]
async fn buckets_are_listed_headed_and_located() {
    let buckets = "<ListAllMyBucketsResult><Buckets><Bucket><Name>one</Name>\
        <CreationDate>1970-01-01T00:00:01.000Z</CreationDate></Bucket></Buckets></ListAllMyBucketsResult>";
    let location = "<LocationConstraint xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">cn-north-1</LocationConstraint>";
    let double = Double::start(vec![
        answer(200, "", buckets),
        answer(200, "x-amz-bucket-region: cn-north-1\r\nserver: no\r\n", ""),
        answer(200, "", location),
        answer(404, "", ""),
    ])
    .await;
    let bucket = BucketName::new("bucket").unwrap();
    let entries = double.origin.list_buckets().await.unwrap();
    assert_eq!((entries[0].name.as_str(), entries[0].created.unwrap().0), ("one", 1000));
    let headers = double.origin.head_bucket(&bucket).await.unwrap();
    assert_eq!(headers["x-amz-bucket-region"], "cn-north-1");
    assert!(!headers.contains_key("server"));
    assert_eq!(double.origin.bucket_location(&bucket).await.unwrap(), "cn-north-1");
    let missing = double.origin.head_bucket(&bucket).await.unwrap_err();
    assert!(matches!(missing, OriginError::NotFound(_)));
}

#[tokio::test]
async fn an_unusable_endpoint_is_refused() {
    for endpoint in ["", "no url", "ftp://host", "http://user:pass@host", "http://h/?q=1"] {
        let config = S3Config {
            name: OriginName::new("o").unwrap(),
            dialect: Dialect::S3,
            endpoint: endpoint.into(),
            region: "r".into(),
            addressing: None,
            credentials: SharedCredentials::new(AccessKey {
                id: "i".into(),
                secret: "s".into(),
                session_token: None,
            }),
            ca: None,
            limits: OriginLimits::default(),
        };
        let failed = S3Origin::new(config, &Registry::new()).unwrap_err();
        assert!(!failed.to_string().contains("pass@"), "{failed}");
    }
}
