//! The short check against s3s's, on random requests, right and tampered with.

use crate::gateway::signature_check;
use crate::guard::{Guard, Passed};
use crate::host::Domains;
use crate::keys::KeyRing;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use larder_model::{Clock, Timestamp};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use s3s::route::S3Route;
use s3s::service::S3Service;
use s3s::{Body, S3Request, S3Response, S3Result};
use std::sync::Arc;

/// The signer of the integration tests: independent of the check.
#[path = "../../../tests/gateway/sign.rs"]
mod sign;

use sign::{EMPTY, Signable, Signing, encode};

/// 2026-01-02 03:04:05 UTC.
const NOW_S: i64 = 1_767_323_045;

struct Held;

impl Clock for Held {
    fn now(&self) -> Timestamp {
        Timestamp(NOW_S as u64 * 1000)
    }
}

/// Tells who signed whatever reaches it.
struct Witness;

#[async_trait::async_trait]
impl S3Route for Witness {
    fn is_match(&self, _: &Method, _: &Uri, _: &HeaderMap, _: &mut http::Extensions) -> bool {
        true
    }

    async fn check_access(&self, _: &mut S3Request<Body>) -> S3Result<()> {
        Ok(())
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let signer = request.credentials.map(|credentials| credentials.access_key);
        Ok(S3Response::new(Body::from(signer.unwrap_or_default())))
    }
}

/// A request, before it becomes one.
#[derive(Clone, Debug)]
struct Draft {
    method: &'static str,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
}

fn pick<'a>(rng: &mut StdRng, from: &[&'a str]) -> &'a str {
    from.choose(rng).copied().unwrap_or_default()
}

/// A request that is signed rightly, in one of the many ways in which clients write one.
fn draft(rng: &mut StdRng) -> Draft {
    let pieces =
        ["a", "B7", "-_.~", "/", "//", " ", "+", "%", "\u{fc}", "к", "..", "=", "&", ":", "@"];
    let key: String = (0..rng.random_range(1..8)).map(|_| pick(rng, &pieces)).collect();
    let encoded: Vec<String> = key.split('/').map(encode).collect();
    let path = format!("/data/{}", encoded.join("/"));
    let names =
        ["x-id", "versionId", "list-type", "prefix", "response-content-type", "a b", "partNumber"];
    let mut query: Vec<(String, String)> = Vec::new();
    for _ in 0..rng.random_range(0..3) {
        let value = pick(rng, &["GetObject", "2", "", "a/b c", "\u{fc}+", "x=y"]);
        let name = pick(rng, &names);
        // s3s sorts by name alone, AWS by value, too: no name comes twice.
        if query.iter().all(|(n, _)| n != name) {
            query.push((name.to_owned(), value.to_owned()));
        }
    }
    if rng.random_bool(0.7) {
        query.sort();
    }
    let signing = Signing {
        access_key: "TRAINER".to_owned(),
        secret: "a-secret".to_owned(),
        region: pick(rng, &["us-east-1", "cn-hangzhou"]).to_owned(),
        service: "s3".to_owned(),
        terminator: "aws4_request".to_owned(),
        algorithm: "AWS4-HMAC-SHA256".to_owned(),
        at: NOW_S + rng.random_range(-600..600),
        scope_date: None,
        signed: None,
        payload: pick(rng, &[EMPTY, EMPTY, "UNSIGNED-PAYLOAD"]).to_owned(),
        expires: String::new(),
    };
    let mut headers = vec![
        (
            "host".to_owned(),
            pick(rng, &["127.0.0.1:9000", "s3.local", "train.s3.local"]).to_owned(),
        ),
        ("x-amz-content-sha256".to_owned(), signing.payload.clone()),
        ("x-amz-date".to_owned(), signing.amz_date()),
    ];
    for (name, value) in [
        ("range", "bytes=0-9"),
        ("if-match", "\"abc\""),
        ("user-agent", "Boto3/1.40 md/Botocore#1.40 ua/2.1 os/linux"),
        ("x-amz-checksum-mode", "ENABLED"),
        ("amz-sdk-invocation-id", "0a1b2c"),
        ("x-amz-meta-note", "two words"),
    ] {
        if rng.random_bool(0.3) {
            headers.push((name.to_owned(), value.to_owned()));
        }
    }
    let method = pick(rng, &["GET", "HEAD"]);
    let method = if method == "GET" { "GET" } else { "HEAD" };
    let signable = Signable { method, path: &path, query: query.clone(), headers: headers.clone() };
    let authorization = signing.authorization(&signable);
    headers.push(("authorization".to_owned(), authorization));
    let query = sign::encode_query(&query);
    Draft { method, path, query, headers }
}

/// Changes something that a signature covers, or may cover, or that only looks different.
fn tamper(rng: &mut StdRng, draft: &mut Draft) {
    let at = rng.random_range(0..draft.headers.len());
    match rng.random_range(0..12) {
        0 => draft.method = if draft.method == "GET" { "HEAD" } else { "GET" },
        1 => draft.path.push_str(pick(rng, &["x", "/", "%20", "%2F", "%41", "+", "%c3%bc"])),
        2 => draft.path = draft.path.replacen("%2B", "+", 1),
        3 => draft.path = draft.path.replacen('a', "%61", 1),
        4 => draft.path = draft.path.replacen('/', "//", 1),
        5 => draft.query.push_str(pick(rng, &["&x=1", "x", "&", "=", "%20", "&x-id=PutObject"])),
        6 => {
            let mut pairs: Vec<&str> = draft.query.split('&').collect();
            pairs.reverse();
            draft.query = pairs.join("&");
        }
        7 => draft.headers[at].1.push_str(pick(rng, &["x", " ", "  y", "\t", ",z", "0"])),
        8 => {
            draft.headers.remove(at);
        }
        9 => {
            let double = draft.headers[at].clone();
            draft.headers.push(double);
        }
        10 => {
            let value = draft.headers[at].1.replacen("us-east-1", "cn-hangzhou", 1);
            draft.headers[at].1 = value.replacen(';', ",", usize::from(rng.random_bool(0.5)));
        }
        _ => {
            let last = draft.headers.iter_mut().find(|(name, _)| name == "authorization");
            if let Some((_, value)) = last {
                let digit = value.pop();
                value.push(if digit == Some('0') { '1' } else { '0' });
            }
        }
    }
}

impl Draft {
    fn request(&self) -> Option<Request<Body>> {
        let target = match self.query.as_str() {
            "" => self.path.clone(),
            query => format!("{}?{query}", self.path),
        };
        let mut request = Request::builder().method(self.method).uri(target);
        for (name, value) in &self.headers {
            // As hyper does.
            let value = HeaderValue::from_bytes(value.trim_matches([' ', '\t']).as_bytes()).ok()?;
            request = request.header(HeaderName::try_from(name).ok()?, value);
        }
        request.body(Body::empty()).ok()
    }
}

struct Judges {
    guard: Guard,
    keys: Arc<KeyRing>,
    service: S3Service,
}

impl Judges {
    fn new() -> Self {
        let key = ("TRAINER".to_owned(), "a-secret".to_owned());
        let keys = Arc::new(KeyRing::new([key]));
        let regions = vec!["us-east-1".to_owned(), "cn-hangzhou".to_owned()];
        let domains = Domains::new(&["s3.local".to_owned()]);
        let clock = Arc::new(Held);
        let guard =
            Guard { regions, anonymous: false, forms: false, domains: domains.clone(), clock };
        Self { guard, service: signature_check(Witness, domains, keys.clone()), keys }
    }

    /// Who signed: (as the short check says, as s3s says).
    async fn judge(&self, request: Request<Body>) -> (Option<String>, Option<String>) {
        let (parts, body) = request.into_parts();
        let short = match self.guard.check(&parts, true) {
            Ok(Passed { signed: Some(signed), .. }) => signed.verify(&parts, &self.keys),
            _ => None,
        };
        let answer = self.service.call(Request::from_parts(parts, body)).await.unwrap();
        let long = (answer.status() == 200).then(|| answer.into_body().bytes().unwrap_or_default());
        let long = long.map(|signer| String::from_utf8_lossy(&signer).into_owned());
        (short.map(|principal| principal.as_str().to_owned()), long)
    }
}

/// `LARDER_SEQUENCES` of them, else 4,000. Half are as their signer made them.
#[tokio::test]
async fn what_the_short_check_verifies_s3s_verifies_too() {
    let count = std::env::var("LARDER_SEQUENCES").ok().and_then(|n| n.parse().ok());
    let count: u64 = count.unwrap_or(4_000);
    let judges = Judges::new();
    let (mut right, mut recognised, mut refused) = (0, 0, 0);
    for seed in 0..count {
        let rng = &mut StdRng::seed_from_u64(seed);
        let mut draft = draft(rng);
        let tampered = rng.random_bool(0.5);
        if tampered {
            tamper(rng, &mut draft);
        }
        let Some(request) = draft.request() else { continue };
        let (short, long) = judges.judge(request).await;
        if short.is_some() {
            assert_eq!(short, long, "seed {seed}: {draft:?}");
        }
        if tampered {
            refused += u64::from(long.as_deref() != Some("TRAINER"));
        } else {
            right += 1;
            assert_eq!(long.as_deref(), Some("TRAINER"), "seed {seed}: {draft:?}");
            recognised += u64::from(short.is_some());
        }
    }
    // Both answers must be common, or the comparison says little.
    println!("{count} requests: {recognised} of {right} right ones recognised, {refused} refused");
    assert!(recognised * 2 > right, "{recognised} of {right}");
    assert!(refused * 5 > count, "{refused} of {count}");
}
