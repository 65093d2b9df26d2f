//! `survey` against doubles with a mind of their own: what is found, what is asked, what is left.

use super::double::{KEY_ID, SECRET, Seen, TOKEN, config, converse_with, limits};
use larder_model::BucketName;
use larder_origin::{Addressing, Answer, Dialect, Survey, survey};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// How a double differs from Amazon's own.
#[derive(Clone, Copy, Default)]
struct Ways {
    path: bool,
    host: bool,
    tokens: bool,
    if_match: bool,
    checksums: bool,
    /// Whether a framed body is stored as it came.
    stores_framing: bool,
    conditional_put: bool,
    versions: bool,
    upper_case: bool,
    oss: bool,
    region: &'static str,
    unknown_keys: bool,
    cannot_delete: bool,
}

const AMAZON: Ways = Ways {
    path: true,
    host: true,
    tokens: true,
    if_match: true,
    checksums: true,
    stores_framing: false,
    conditional_put: true,
    versions: false,
    upper_case: false,
    oss: false,
    region: "cn-test-1",
    unknown_keys: false,
    cannot_delete: false,
};

struct Origin {
    port: u16,
    objects: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    server: JoinHandle<()>,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Origin {
    async fn start(ways: Ways) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let objects = BTreeMap::from(["a", "b"].map(|key| (key.to_owned(), b"0123".to_vec())));
        let objects = Arc::new(Mutex::new(objects));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (shared, record) = (Arc::clone(&objects), Arc::clone(&seen));
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (objects, record) = (Arc::clone(&shared), Arc::clone(&record));
                connections.spawn(converse_with(stream, move |seen| {
                    let reply = answer(ways, seen, &mut objects.lock().unwrap());
                    record.lock().unwrap().push(seen.clone());
                    reply
                }));
            }
        });
        Self { port, objects, seen, server }
    }

    async fn survey(&self, bucket: Option<&str>, write: bool) -> Survey {
        let endpoint = format!("http://s3.localhost:{}", self.port);
        let config = config(Dialect::S3, endpoint, limits());
        let bucket = bucket.map(|name| BucketName::new(name).unwrap());
        let found = survey(&config, bucket, write).await.unwrap();
        let told = format!("{found:?}");
        for secret in [KEY_ID, SECRET, TOKEN] {
            assert!(!told.contains(secret), "{told}");
        }
        found
    }

    fn keys(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    fn methods(&self) -> Vec<String> {
        let mut methods: Vec<_> =
            self.seen.lock().unwrap().iter().map(|seen| seen.method.clone()).collect();
        methods.sort();
        methods.dedup();
        methods
    }
}

fn refuse(status: u16, code: &str, more: &str) -> (u16, String, String) {
    (status, String::new(), format!("<Error><Code>{code}</Code>{more}</Error>"))
}

/// Status, header lines and body.
fn answer(
    ways: Ways,
    seen: &Seen,
    objects: &mut BTreeMap<String, Vec<u8>>,
) -> (u16, String, String) {
    let common = if ways.oss { "x-oss-request-id: 1\r\n" } else { "" };
    let (status, headers, body) = decide(ways, seen, objects);
    (status, format!("{common}{headers}"), body)
}

fn decide(
    ways: Ways,
    seen: &Seen,
    objects: &mut BTreeMap<String, Vec<u8>>,
) -> (u16, String, String) {
    if ways.unknown_keys {
        return refuse(
            403,
            "InvalidAccessKeyId",
            &format!("<AWSAccessKeyId>{KEY_ID}</AWSAccessKeyId>"),
        );
    }
    let scope = format!("/{}/s3/aws4_request", ways.region);
    if !seen.header("authorization").unwrap().contains(&scope) {
        return refuse(
            400,
            "AuthorizationHeaderMalformed",
            &format!("<Region>{}</Region>", ways.region),
        );
    }
    seen.verify(ways.region);
    let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
    let in_host = ways.host && seen.header("host").unwrap().starts_with("bucket.");
    let rest = if in_host { path.strip_prefix('/') } else { path.strip_prefix("/bucket") };
    let Some(rest) = rest else {
        return (200, String::new(), "<ListAllMyBucketsResult><Buckets><Bucket><Name>bucket</Name></Bucket></Buckets></ListAllMyBucketsResult>".into());
    };
    if !in_host && !ways.path {
        return refuse(403, "SecondLevelDomainForbidden", "");
    }
    match rest.trim_start_matches('/') {
        "" if query.contains("location") => {
            let told =
                format!("<LocationConstraint xmlns=\"x\">{}</LocationConstraint>", ways.region);
            (200, String::new(), told)
        }
        "" if query.contains("versions") => refuse(501, "NotImplemented", ""),
        "" => (200, String::new(), page(ways, query, objects)),
        key => object(ways, seen, key, objects),
    }
}

fn page(ways: Ways, query: &str, objects: &BTreeMap<String, Vec<u8>>) -> String {
    let token = ways.tokens && query.contains("list-type=2");
    let token = if token { "<NextContinuationToken>t</NextContinuationToken>" } else { "" };
    let first = objects.keys().next().unwrap();
    format!(
        "<?xml version=\"1.0\"?><ListBucketResult><EncodingType>url</EncodingType>\
         <IsTruncated>{}</IsTruncated>{token}<Contents><Key>{first}</Key></Contents>\
         </ListBucketResult>",
        objects.len() > 1
    )
}

fn object(
    ways: Ways,
    seen: &Seen,
    key: &str,
    objects: &mut BTreeMap<String, Vec<u8>>,
) -> (u16, String, String) {
    let summed = seen.headers.iter().any(|(name, _)| name.contains("checksum"));
    if summed && !ways.checksums {
        return refuse(400, "InvalidArgument", "");
    }
    let tag = if ways.upper_case { "\"ABCDEF01\"" } else { "\"abcdef01\"" };
    let version = if ways.versions { "x-amz-version-id: v1\r\n" } else { "" };
    let checksum = if summed { "x-amz-checksum-crc32: AAAAAA==\r\n" } else { "" };
    let headers = format!("etag: {tag}\r\n{version}{checksum}");
    match seen.method.as_str() {
        "PUT" if seen.header("if-none-match").is_some() && ways.conditional_put => {
            refuse(412, "PreconditionFailed", "")
        }
        "PUT" => {
            let framed = seen.header("x-amz-decoded-content-length").is_some();
            let body = if framed && !ways.stores_framing {
                let text = String::from_utf8(seen.body.clone()).unwrap();
                text.split("\r\n").nth(1).unwrap().as_bytes().to_vec()
            } else {
                seen.body.clone()
            };
            objects.insert(key.to_owned(), body);
            (200, headers, String::new())
        }
        "DELETE" if ways.cannot_delete => refuse(403, "AccessDenied", ""),
        "DELETE" => {
            objects.remove(key);
            (204, String::new(), String::new())
        }
        _ if seen.header("if-match").is_some() && ways.if_match => {
            refuse(412, "PreconditionFailed", "")
        }
        _ => match objects.get(key) {
            Some(body) => (200, headers, String::from_utf8(body.clone()).unwrap()),
            None => refuse(404, "NoSuchKey", ""),
        },
    }
}

/// The answers to these questions, in this order, `?` for what could not be found out.
fn check(found: &Survey, expected: &[(&str, char)]) {
    let letter = |answer| match answer {
        Answer::Yes => 'y',
        Answer::No => 'n',
        Answer::Unknown => '?',
    };
    let got: Vec<_> =
        found.findings.iter().map(|finding| (finding.subject, letter(finding.answer))).collect();
    assert_eq!(got, expected, "{found:#?}");
}

#[tokio::test]
async fn amazons_own_ways_are_found_without_writing() {
    let origin = Origin::start(AMAZON).await;
    let found = origin.survey(None, false).await;
    check(
        &found,
        &[
            ("answers", 'y'),
            ("keys accepted", 'y'),
            ("bucket in the path", 'y'),
            ("bucket in the host name", 'y'),
            ("signing region accepted", 'y'),
            ("ListObjectsV2 with tokens", 'y'),
            ("ListObjects", 'y'),
            ("If-Match on GET", 'y'),
            ("x-amz-checksum-mode", 'y'),
            ("version ids", 'n'),
            ("ETag in lower case", 'y'),
        ],
    );
    assert!(found.usable && found.left_behind.is_none());
    assert_eq!(found.bucket.unwrap().as_str(), "bucket");
    assert_eq!((found.dialect, found.addressing), (Dialect::S3, Addressing::Path));
    assert_eq!(origin.methods(), ["GET", "HEAD"]);
}

#[tokio::test]
async fn writing_finds_the_rest_and_leaves_nothing() {
    let origin = Origin::start(AMAZON).await;
    let found = origin.survey(Some("bucket"), true).await;
    check(
        &found,
        &[
            ("answers", 'y'),
            ("keys accepted", 'y'),
            ("bucket in the path", 'y'),
            ("bucket in the host name", 'y'),
            ("signing region accepted", 'y'),
            ("ListObjectsV2 with tokens", 'y'),
            ("ListObjects", 'y'),
            ("PUT with a signed payload", 'y'),
            ("UNSIGNED-PAYLOAD", 'y'),
            ("x-amz-checksum-crc32 on PUT", 'y'),
            ("checksum as a trailer", 'y'),
            ("If-None-Match on PUT", 'y'),
            ("If-Match on GET", 'y'),
            ("x-amz-checksum-mode", 'y'),
            ("version ids", 'n'),
            ("ETag in lower case", 'y'),
            ("probe object deleted", 'y'),
        ],
    );
    assert_eq!(origin.keys(), ["a", "b"]);
    let seen = origin.seen.lock().unwrap();
    let writes = seen.iter().filter(|seen| seen.method != "GET" && seen.method != "HEAD");
    assert!(writes.clone().count() > 4);
    assert!(writes.clone().all(|seen| seen.target.starts_with("/bucket/larder-probe-")));
}

#[tokio::test]
async fn everything_that_is_missing_is_found_missing() {
    let poor =
        Ways { host: true, oss: true, upper_case: true, region: "cn-other", ..Ways::default() };
    let origin = Origin::start(poor).await;
    let found = origin.survey(Some("bucket"), true).await;
    check(
        &found,
        &[
            ("answers", 'y'),
            ("keys accepted", 'y'),
            ("bucket in the path", 'n'),
            ("bucket in the host name", 'y'),
            ("signing region accepted", 'y'),
            ("ListObjectsV2 with tokens", 'n'),
            ("ListObjects", 'y'),
            ("PUT with a signed payload", 'y'),
            ("UNSIGNED-PAYLOAD", 'y'),
            ("x-amz-checksum-crc32 on PUT", 'n'),
            ("checksum as a trailer", 'n'),
            ("If-None-Match on PUT", 'n'),
            ("If-Match on GET", 'n'),
            ("x-amz-checksum-mode", 'n'),
            ("version ids", 'n'),
            ("ETag in lower case", 'n'),
            ("probe object deleted", 'y'),
        ],
    );
    assert_eq!((found.dialect, found.addressing), (Dialect::Oss, Addressing::Virtual));
    assert_eq!(found.region, "cn-other");
    assert_eq!(origin.keys(), ["a", "b"]);
}

fn answer_to(found: &Survey, subject: &str) -> Answer {
    found.findings.iter().find(|finding| finding.subject == subject).unwrap().answer
}

#[tokio::test]
async fn a_framing_that_is_stored_as_content_is_no_support_of_trailers() {
    let origin = Origin::start(Ways { stores_framing: true, versions: true, ..AMAZON }).await;
    let found = origin.survey(Some("bucket"), true).await;
    assert_eq!(answer_to(&found, "checksum as a trailer"), Answer::No);
    assert_eq!(answer_to(&found, "version ids"), Answer::Yes);
}

#[tokio::test]
async fn an_object_that_cannot_be_deleted_is_named() {
    let origin = Origin::start(Ways { cannot_delete: true, ..AMAZON }).await;
    let found = origin.survey(Some("bucket"), true).await;
    assert_eq!(answer_to(&found, "probe object deleted"), Answer::No);
    let left = found.left_behind.unwrap();
    assert!(origin.keys().contains(&left.as_str().to_owned()));
}

#[tokio::test]
async fn refused_keys_and_a_silent_endpoint_are_findings() {
    let origin = Origin::start(Ways { unknown_keys: true, ..AMAZON }).await;
    for bucket in [None, Some("bucket")] {
        let found = origin.survey(bucket, true).await;
        assert_eq!(answer_to(&found, "keys accepted"), Answer::No);
        assert!(!found.usable);
    }
    assert_eq!(origin.methods(), ["GET"]);
    let port = origin.port;
    drop(origin);
    let mut config = config(Dialect::S3, format!("http://s3.localhost:{port}"), limits());
    config.limits.connect_timeout = std::time::Duration::from_millis(500);
    let found = survey(&config, None, false).await.unwrap();
    assert_eq!(answer_to(&found, "answers"), Answer::No);
    assert!(!found.usable);
}
