//! The same requests at moto and through the proxy, cold and warm: same status, same headers that
//! mean something, same body.

use anyhow::{Result, ensure};
use http::Method;
use larder_tests::client::{Ask, Client, Reply};
use larder_tests::larder::{Larder, cache, dataset, s3_origin};
use larder_tests::moto::Moto;

/// The headers that must be the origin's.
const HEADERS: [&str; 13] = [
    "content-length",
    "content-range",
    "content-type",
    "content-encoding",
    "content-disposition",
    "content-language",
    "cache-control",
    "expires",
    "etag",
    "last-modified",
    "x-amz-meta-colour",
    "x-amz-version-id",
    "x-amz-storage-class",
];

/// What a request is made of: method, target, headers.
type Row = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const PAST: &str = "Sat, 01 Jan 2000 00:00:00 GMT";
const FUTURE: &str = "Fri, 01 Jan 2100 00:00:00 GMT";

/// `ETAG` in a header's value stands for the ETag of `/data/big`.
const ROWS: [Row; 52] = [
    ("GET", "/data/big", &[]),
    ("HEAD", "/data/big", &[]),
    ("GET", "/data/small", &[]),
    ("HEAD", "/data/small", &[]),
    ("GET", "/data/empty", &[]),
    ("HEAD", "/data/empty", &[]),
    ("GET", "/data/missing", &[]),
    ("HEAD", "/data/missing", &[]),
    ("GET", "/data/dir/a%20b%2Bc%26d", &[]),
    ("GET", "/data/dir/%C3%A4%E2%82%AC", &[]),
    ("GET", "/data/dir//double", &[]),
    ("GET", "/data/big", &[("range", "bytes=0-0")]),
    ("GET", "/data/big", &[("range", "bytes=0-65535")]),
    ("GET", "/data/big", &[("range", "bytes=65535-65536")]),
    ("GET", "/data/big", &[("range", "bytes=100-")]),
    ("GET", "/data/big", &[("range", "bytes=-100")]),
    ("GET", "/data/big", &[("range", "bytes=299999-299999")]),
    ("GET", "/data/big", &[("range", "bytes=299990-400000")]),
    ("GET", "/data/big", &[("range", "bytes=300000-")]),
    ("GET", "/data/big", &[("range", "bytes=400000-500000")]),
    ("GET", "/data/big", &[("range", "bytes=-400000")]),
    ("HEAD", "/data/big", &[("range", "bytes=10-19")]),
    ("GET", "/data/big", &[("if-match", "ETAG")]),
    ("GET", "/data/big", &[("if-match", "\"0123456789abcdef0123456789abcdef\"")]),
    ("GET", "/data/big", &[("if-none-match", "ETAG")]),
    ("GET", "/data/big", &[("if-none-match", "\"0123456789abcdef0123456789abcdef\"")]),
    ("GET", "/data/big", &[("if-modified-since", PAST)]),
    ("GET", "/data/big", &[("if-modified-since", FUTURE)]),
    ("GET", "/data/big", &[("if-unmodified-since", PAST)]),
    ("GET", "/data/big", &[("if-unmodified-since", FUTURE)]),
    ("HEAD", "/data/big", &[("if-match", "ETAG")]),
    ("HEAD", "/data/big", &[("if-match", "\"0123456789abcdef0123456789abcdef\"")]),
    ("HEAD", "/data/big", &[("if-none-match", "ETAG")]),
    ("HEAD", "/data/big", &[("if-modified-since", FUTURE)]),
    ("HEAD", "/data/big", &[("if-unmodified-since", PAST)]),
    ("GET", "/data/big", &[("if-match", "ETAG"), ("range", "bytes=5-14")]),
    ("GET", "/data/small?response-content-type=text%2Fplain", &[]),
    ("GET", "/data/small?response-cache-control=no-store", &[]),
    ("GET", "/data/small?response-content-disposition=attachment", &[]),
    ("GET", "/data?list-type=2", &[]),
    ("GET", "/data?list-type=2&prefix=dir%2F", &[]),
    ("GET", "/data?list-type=2&delimiter=%2F", &[]),
    ("GET", "/data?list-type=2&prefix=dir%2F&delimiter=%2F", &[]),
    ("GET", "/data?list-type=2&max-keys=2", &[]),
    ("GET", "/data?list-type=2&start-after=dir%2Fz", &[]),
    ("GET", "/data?list-type=2&prefix=none", &[]),
    ("GET", "/data", &[]),
    ("GET", "/data?prefix=dir%2F", &[]),
    ("GET", "/data?delimiter=%2F&max-keys=3", &[]),
    ("GET", "/data?marker=dir%2Fz", &[]),
    ("HEAD", "/data", &[]),
    ("GET", "/data?location", &[]),
];

async fn fill(origin: &Client) -> Result<String> {
    origin.make_bucket("data").await?;
    let big: Vec<u8> = (0..300_000_u32).map(|index| (index % 251) as u8).collect();
    let put = Ask::object(Method::PUT, "data", "big")
        .header("content-type", "application/x-shard")
        .header("cache-control", "max-age=60")
        .header("content-disposition", "inline")
        .header("content-language", "de")
        .header("x-amz-meta-colour", "blue")
        .body(big);
    let etag = origin.send(&put).await?.expect(200)?.header("etag").to_owned();
    origin.put("data", "small", "just a few bytes").await?;
    origin.put("data", "empty", "").await?;
    for key in ["dir/a b+c&d", "dir/ä€", "dir//double", "dir/z1", "dir/z2", "other/deep/x"] {
        origin.put("data", key, key).await?;
    }
    Ok(etag)
}

fn ask(row: &Row, etag: &str) -> Result<Ask> {
    let (method, target, headers) = row;
    let plain = Ask::target(method.parse()?, target);
    let with =
        |ask: Ask, (name, value): &(&str, &str)| ask.header(name, &value.replace("ETAG", etag));
    Ok(headers.iter().fold(plain, with))
}

/// How two answers to the same request differ, if they do.
fn difference(row: &Row, direct: &Reply, proxied: &Reply) -> Option<String> {
    if direct.status != proxied.status {
        return Some(format!("status {} is {}: {}", direct.status, proxied.status, proxied.text()));
    }
    let listing = direct.text().contains("<ListBucketResult");
    let success = direct.status.is_success() || direct.status == 304;
    if success && !listing && !row.1.contains("location") {
        for name in HEADERS {
            let (want, got) = (direct.header(name), proxied.header(name));
            if want != got && !excused(row, direct, name) {
                return Some(format!("{name}: {want:?} is {got:?}"));
            }
        }
    }
    let bodies = match () {
        () if listing => (listed(&direct.text()), listed(&proxied.text())),
        () if success && direct.header("content-type").contains("xml") => (
            element(&direct.text(), "LocationConstraint"),
            element(&proxied.text(), "LocationConstraint"),
        ),
        () if success => return (direct.body != proxied.body).then(|| "other bytes".to_owned()),
        () => (element(&direct.text(), "Code"), element(&proxied.text(), "Code")),
    };
    let lengths = (bodies.0.len() != bodies.1.len())
        .then(|| format!("{} elements are {}", bodies.0.len(), bodies.1.len()));
    let mut pairs = bodies.0.iter().zip(&bodies.1);
    let first = pairs.find(|(want, got)| want != got);
    first.map(|(want, got)| format!("{want:?} is {got:?}")).or(lengths)
}

/// Where moto itself differs from S3, and the proxy goes with S3.
fn excused(row: &Row, direct: &Reply, name: &str) -> bool {
    // S3's 304 tells the validators and how long they hold; moto's tells no date, other headers for
    // GET than for HEAD, and a length of the body that is not there.
    let unchanged = direct.status == 304 && name != "etag";
    // moto gives the answer to HeadBucket a length and a type, S3 none.
    let bucket = *row == ("HEAD", "/data", &[]) && name.starts_with("content-");
    unchanged || bucket
}

/// What a listing says, without the spelling and the order of its XML: for each name the texts of
/// its elements, in the order of the document.
fn listed(text: &str) -> Vec<String> {
    let names = ["Name", "Key", "ETag", "Size", "LastModified", "Prefix", "IsTruncated"];
    let storage = ["StorageClass", "KeyCount", "MaxKeys", "Delimiter", "StartAfter"];
    names.iter().chain(&storage).flat_map(|name| element(text, name)).collect()
}

/// The texts of the elements of a name, in the order of the document; empty ones left out, since
/// moto leaves out some that S3 writes.
fn element(text: &str, name: &str) -> Vec<String> {
    let texts = text.split('<').filter_map(|tag| {
        let (head, content) = tag.split_once('>')?;
        (head.split(' ').next() == Some(name)).then(|| content.replace("&quot;", "\""))
    });
    texts.filter(|text| !text.is_empty()).map(|text| format!("{name}={text}")).collect()
}

async fn check(freshness: &str) -> Result<()> {
    let moto = Moto::start().await?;
    let origin = moto.client();
    let etag = fill(&origin).await?;
    let rest = format!("freshness = \"{freshness}\"\nblock = \"64KiB\"");
    let config = format!(
        "{}{}{}",
        cache("32MiB", None),
        s3_origin("moto", &moto.endpoint()),
        dataset("data", "moto", "data", &rest)
    );
    let shared = Larder::start(&config).await?;
    let mut differences = Vec::new();
    for row in &ROWS {
        let direct = origin.send(&ask(row, &etag)?).await?;
        for temperature in ["first", "again"] {
            let proxied = shared.client().send(&ask(row, &etag)?).await?;
            if let Some(difference) = difference(row, &direct, &proxied) {
                differences.push(format!("{row:?} {temperature}: {difference}"));
            }
        }
    }
    // Cold for each request, which the rows before it warmed above.
    for row in &ROWS {
        let direct = origin.send(&ask(row, &etag)?).await?;
        let key = row.1.split('?').next().unwrap_or_default();
        let fresh =
            if key.matches('/').count() > 1 { Some(Larder::start(&config).await?) } else { None };
        let larder = fresh.as_ref().unwrap_or(&shared);
        let proxied = larder.client().send(&ask(row, &etag)?).await?;
        if let Some(difference) = difference(row, &direct, &proxied) {
            differences.push(format!("{row:?} cold: {difference}"));
        }
    }
    println!(
        "{freshness}: {} requests, cold and warm: {} differences",
        ROWS.len(),
        differences.len()
    );
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

#[tokio::test]
async fn a_strict_dataset_answers_as_the_origin() -> Result<()> {
    check("strict").await
}

#[tokio::test]
async fn an_immutable_dataset_answers_as_the_origin() -> Result<()> {
    check("immutable").await
}

#[test]
fn elements_are_read_in_order() {
    let text =
        "<A><Contents><Key>a</Key><Size>1</Size></Contents><Key>b &quot;</Key><Key></Key></A>";
    assert_eq!(element(text, "Key"), ["Key=a", "Key=b \""]);
    assert_eq!(listed(text), ["Key=a", "Key=b \"", "Size=1"]);
}
