//! Signature Version 4 from the server's side, and the chunks of aws-chunked bodies from both,
//! written from the description alone so that a signer and its judge share no code.
//!
//! Source: "Authenticating Requests (AWS Signature Version 4)" and "Signature Calculations for the
//! Authorization Header: Transferring Payload in Multiple Chunks", S3 API reference.

use crate::double::Refusal;
use http::HeaderMap;
use http::request::Parts;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sha2::{Digest as _, Sha256};
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{Duration, OffsetDateTime, PrimitiveDateTime};

/// The SHA-256 of no bytes.
pub const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// A body that is not signed.
pub const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// A body in chunks, each with a signature.
pub const CHUNKED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
/// The same with a signed trailer.
pub const CHUNKED_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
/// Chunks without signatures, and a trailer.
pub const UNSIGNED_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const STAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year][month][day]T[hour][minute][second]Z");
const SKEW: Duration = Duration::minutes(15);

/// All but the unreserved characters of RFC 3986 are escaped.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH: &AsciiSet = &VALUE.remove(b'/');

/// Whom a server knows, and the region that it is in.
#[derive(Clone, Debug)]
pub struct Account {
    /// The access key.
    pub access_key: String,
    /// Its secret.
    pub secret: String,
    /// The region in the scope.
    pub region: String,
}

/// A signature that was found good.
#[derive(Clone, Debug)]
pub struct Proof {
    /// `x-amz-content-sha256`; [`UNSIGNED`] for a presigned request without one.
    pub payload: String,
    /// The signature of the head: the seed of a chunked body's.
    pub signature: String,
    key: [u8; 32],
    stamp: String,
    scope: String,
}

/// What a request says of its own signature.
struct Claim {
    credential: Vec<String>,
    signed: Vec<String>,
    signature: String,
    stamp: String,
    lives: Option<Duration>,
}

/// Checks the signature of a request's head.
///
/// # Errors
///
/// What S3 answers: no or a malformed signature, a foreign key, another region or service, a clock
/// far off, `host` or an `x-amz-*` header that is not signed, another signature.
pub fn verify(head: &Parts, account: &Account) -> Result<Proof, Refusal> {
    let claim = if head.headers.contains_key("authorization") {
        Claim::in_header(&head.headers)?
    } else {
        Claim::in_query(head.uri.query().unwrap_or_default())?
    };
    let scope = check_scope(&claim, account)?;
    check_time(&claim)?;
    check_signed(&claim, &head.headers)?;
    let payload = match header(&head.headers, "x-amz-content-sha256") {
        Some(payload) => payload,
        None if claim.lives.is_some() => UNSIGNED.to_owned(),
        None => {
            return Err(Refusal::new(400, "InvalidRequest", "x-amz-content-sha256 is missing"));
        }
    };
    let canonical = canonical(head, &claim, &payload);
    let digest = hex::encode(Sha256::digest(&canonical));
    let to_sign = format!("{ALGORITHM}\n{}\n{scope}\n{digest}", claim.stamp);
    let key = signing_key(&account.secret, &scope);
    let signature = hex::encode(hmac(&key, to_sign.as_bytes()));
    if signature != claim.signature {
        let told = format!("the signature does not match; canonical request:\n{canonical}");
        return Err(Refusal::new(403, "SignatureDoesNotMatch", told));
    }
    Ok(Proof { payload, signature, key, stamp: claim.stamp, scope })
}

impl Claim {
    fn in_header(headers: &HeaderMap) -> Result<Self, Refusal> {
        let malformed =
            |what: &str| Refusal::new(400, "AuthorizationHeaderMalformed", what.to_owned());
        let text = header(headers, "authorization").unwrap_or_default();
        let rest = text
            .strip_prefix(ALGORITHM)
            .ok_or_else(|| Refusal::new(400, "InvalidRequest", "another algorithm"))?;
        let field = |name: &str| {
            let fields = rest.split(',').map(str::trim);
            fields.filter_map(|field| field.strip_prefix(name)).next().map(str::to_owned)
        };
        let credential = field("Credential=").ok_or_else(|| malformed("no Credential"))?;
        let signed = field("SignedHeaders=").ok_or_else(|| malformed("no SignedHeaders"))?;
        Ok(Self {
            credential: split(&credential, '/'),
            signed: split(&signed, ';'),
            signature: field("Signature=").ok_or_else(|| malformed("no Signature"))?,
            stamp: header(headers, "x-amz-date").ok_or_else(|| malformed("no x-amz-date"))?,
            lives: None,
        })
    }

    fn in_query(query: &str) -> Result<Self, Refusal> {
        let parameters = decoded(query);
        let find = |name: &str| {
            let found = parameters.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.clone()).ok_or_else(|| {
                Refusal::new(403, "AccessDenied", format!("the request has no {name}"))
            })
        };
        if find("X-Amz-Algorithm")? != ALGORITHM {
            return Err(Refusal::new(400, "InvalidRequest", "another algorithm"));
        }
        let lives = find("X-Amz-Expires")?.parse().unwrap_or_default();
        if !(1..=604_800).contains(&lives) {
            let code = "AuthorizationQueryParametersError";
            return Err(Refusal::new(400, code, "X-Amz-Expires must be 1 to 604800"));
        }
        Ok(Self {
            credential: split(&find("X-Amz-Credential")?, '/'),
            signed: split(&find("X-Amz-SignedHeaders")?, ';'),
            signature: find("X-Amz-Signature")?,
            stamp: find("X-Amz-Date")?,
            lives: Some(Duration::seconds(lives)),
        })
    }
}

/// The scope, if key, day, region, service and end are the server's.
fn check_scope(claim: &Claim, account: &Account) -> Result<String, Refusal> {
    let malformed = |what: String| Refusal::new(400, "AuthorizationHeaderMalformed", what);
    let [key, day, region, service, end] = claim.credential.as_slice() else {
        return Err(malformed("the credential has other than five parts".to_owned()));
    };
    if *key != account.access_key {
        return Err(Refusal::new(403, "InvalidAccessKeyId", "the access key is not known"));
    }
    if *region != account.region {
        let expected = &account.region;
        return Err(malformed(format!("the region '{region}' is wrong; expecting '{expected}'")));
    }
    if service != "s3" || end != "aws4_request" || !claim.stamp.starts_with(day.as_str()) {
        return Err(malformed(format!("the scope is wrong: {:?}", claim.credential)));
    }
    Ok(format!("{day}/{region}/{service}/{end}"))
}

fn check_time(claim: &Claim) -> Result<(), Refusal> {
    let made = PrimitiveDateTime::parse(&claim.stamp, STAMP)
        .map_err(|_| Refusal::new(403, "AccessDenied", "the date of the signature is malformed"))?
        .assume_utc();
    let now = OffsetDateTime::from(now());
    match claim.lives {
        None if (now - made).abs() > SKEW => {
            Err(Refusal::new(403, "RequestTimeTooSkewed", "the clocks are too far apart"))
        }
        Some(lives) if now > made + lives || made > now + SKEW => {
            Err(Refusal::new(403, "AccessDenied", "Request has expired"))
        }
        _ => Ok(()),
    }
}

/// The wall clock, which signatures carry.
#[must_use]
pub fn now() -> std::time::SystemTime {
    #[expect(clippy::disallowed_methods, reason = "a signature carries the wall-clock time")]
    std::time::SystemTime::now()
}

fn check_signed(claim: &Claim, headers: &HeaderMap) -> Result<(), Refusal> {
    let must = |name: &str| name == "host" || name.starts_with("x-amz-");
    let signed = |name: &str| claim.signed.iter().any(|signed| signed == name);
    let names = headers.keys().map(http::HeaderName::as_str);
    let loose: Vec<&str> = names.filter(|name| must(name) && !signed(name)).collect();
    if loose.is_empty() && signed("host") {
        return Ok(());
    }
    let told = format!("headers are present that are not signed: {loose:?}");
    Err(Refusal::new(403, "AccessDenied", told))
}

fn canonical(head: &Parts, claim: &Claim, payload: &str) -> String {
    let path = percent_decode_str(head.uri.path()).collect::<Vec<u8>>();
    let path = percent_encoding::percent_encode(&path, PATH).to_string();
    let mut query: Vec<(String, String)> = decoded(head.uri.query().unwrap_or_default())
        .into_iter()
        .filter(|(name, _)| claim.lives.is_none() || name != "X-Amz-Signature")
        .map(|(name, value)| (escaped(&name), escaped(&value)))
        .collect();
    query.sort();
    let query: Vec<String> =
        query.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut text = format!("{}\n{path}\n{}\n", head.method, query.join("&"));
    for name in &claim.signed {
        let value = header(&head.headers, name).unwrap_or_default();
        text += &format!("{name}:{value}\n");
    }
    text + &format!("\n{}\n{payload}", claim.signed.join(";"))
}

/// All values of a header, each without needless white space, joined by commas.
fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let values: Vec<String> = headers
        .get_all(name)
        .iter()
        .map(|value| {
            let text = String::from_utf8_lossy(value.as_bytes());
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        })
        .collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// The parameters of a query, decoded, in their order.
#[must_use]
pub fn decoded(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}

/// A name or a value as it stands in a query.
#[must_use]
pub fn escaped(text: &str) -> String {
    utf8_percent_encode(text, VALUE).to_string()
}

/// A key as it stands in a path.
#[must_use]
pub fn escaped_path(key: &str) -> String {
    utf8_percent_encode(key, PATH).to_string()
}

fn split(text: &str, at: char) -> Vec<String> {
    text.split(at).map(str::to_owned).collect()
}

fn signing_key(secret: &str, scope: &str) -> [u8; 32] {
    let first: [u8; 32] = {
        let seed = format!("AWS4{secret}");
        let (day, _) = scope.split_once('/').unwrap_or((scope, ""));
        hmac(seed.as_bytes(), day.as_bytes())
    };
    scope.split('/').skip(1).fold(first, |key, part| hmac(&key, part.as_bytes()))
}

/// HMAC with SHA-256 (RFC 2104).
#[must_use]
pub fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner =
        Sha256::new().chain_update(block.map(|b| b ^ 0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(block.map(|b| b ^ 0x5c)).chain_update(inner).finalize().into()
}

/// The chain of signatures over the chunks of one body.
#[derive(Clone, Debug)]
pub struct Chain {
    key: [u8; 32],
    stamp: String,
    scope: String,
    previous: String,
}

impl Chain {
    /// The chain that begins with the signature of a request's head, at the server.
    #[must_use]
    pub fn of(proof: &Proof) -> Self {
        let (stamp, scope) = (proof.stamp.clone(), proof.scope.clone());
        Self { key: proof.key, stamp, scope, previous: proof.signature.clone() }
    }

    /// The same at the client: `stamp` is its `x-amz-date`, `seed` its signature.
    #[must_use]
    pub fn begin(account: &Account, stamp: &str, seed: &str) -> Self {
        let day = stamp.split('T').next().unwrap_or_default();
        let scope = format!("{day}/{}/s3/aws4_request", account.region);
        let key = signing_key(&account.secret, &scope);
        Self { key, stamp: stamp.to_owned(), scope, previous: seed.to_owned() }
    }

    /// The signature of the next chunk.
    pub fn chunk(&mut self, data: &[u8]) -> String {
        let digest = hex::encode(Sha256::digest(data));
        let rest = format!("{}\n{EMPTY_SHA256}\n{digest}", self.previous);
        self.sign(&format!("{ALGORITHM}-PAYLOAD"), &rest)
    }

    /// The signature of a trailer, written as `name:value\n`.
    pub fn trailer(&mut self, text: &str) -> String {
        let digest = hex::encode(Sha256::digest(text));
        let rest = format!("{}\n{digest}", self.previous);
        self.sign(&format!("{ALGORITHM}-TRAILER"), &rest)
    }

    fn sign(&mut self, kind: &str, rest: &str) -> String {
        let text = format!("{kind}\n{}\n{}\n{rest}", self.stamp, self.scope);
        self.previous = hex::encode(hmac(&self.key, text.as_bytes()));
        self.previous.clone()
    }
}

/// A body in signed chunks, decoded and checked; trailers are refused before.
///
/// # Errors
///
/// `IncompleteBody` where the framing is broken or the length is another than declared, and
/// `SignatureDoesNotMatch` for a chunk.
pub fn unchunk(body: &[u8], proof: &Proof, declared: Option<u64>) -> Result<Vec<u8>, Refusal> {
    let broken = || Refusal::new(400, "IncompleteBody", "the framing of the chunks is broken");
    let mut chain = Chain::of(proof);
    let (mut rest, mut data) = (body, Vec::new());
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n").ok_or_else(broken)?;
        let line = std::str::from_utf8(&rest[..end]).map_err(|_| broken())?;
        let (size, signature) = line.split_once(";chunk-signature=").ok_or_else(broken)?;
        let size = usize::from_str_radix(size, 16).map_err(|_| broken())?;
        rest = &rest[end + 2..];
        let chunk = rest.get(..size).ok_or_else(broken)?;
        rest = rest[size..].strip_prefix(b"\r\n").ok_or_else(broken)?;
        if chain.chunk(chunk) != signature {
            let told = format!("the signature of the chunk at {} does not match", data.len());
            return Err(Refusal::new(403, "SignatureDoesNotMatch", told));
        }
        data.extend_from_slice(chunk);
        if size == 0 {
            break;
        }
    }
    if !rest.is_empty() || declared != Some(data.len() as u64) {
        return Err(Refusal::new(400, "IncompleteBody", "another length than declared"));
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::{Account, Chain, hmac};

    #[test]
    fn hmac_agrees_with_rfc_4231() {
        let want = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex::encode(hmac(b"Jefe", b"what do ya want for nothing?")), want);
    }

    #[test]
    fn the_chunks_of_the_documentations_example_have_its_signatures() {
        let account = Account {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            region: "us-east-1".into(),
        };
        let seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
        let mut chain = Chain::begin(&account, "20130524T000000Z", seed);
        let check = |got: String, want: &str| assert_eq!(got, want);
        check(
            chain.chunk(&[b'a'; 65_536]),
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
        );
        check(
            chain.chunk(&[b'a'; 1_024]),
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
        );
        check(chain.chunk(b""), "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9");
    }
}
