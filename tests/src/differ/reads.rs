//! Requests that change nothing, each for an object over a bucket of its own, so that its first way
//! through the proxy is a cold one.

use super::{BUCKET, Capture, Object, Row, Scene};
use crate::wire::{Coding, Wire};
use http::Method;

/// The bytes of the large object: several blocks of 64 KiB, and a piece.
pub const BIG: usize = 300_000;

const PAST: &str = "Sat, 01 Jan 2000 00:00:00 GMT";
const FUTURE: &str = "Fri, 01 Jan 2100 00:00:00 GMT";
const OTHER: &str = "\"0123456789abcdef0123456789abcdef\"";

/// Keys that something on the way might take for more than a name.
fn keys() -> Vec<String> {
    let plain = [
        "plain",
        "a b",
        " lead and trail ",
        "a+b",
        "a%b",
        "a%20b",
        "a%2Fb",
        "a//b",
        "/lead",
        "trail/",
        "dir/../up",
        "dir/./here",
        "..",
        "ä€/日本語",
        "😀",
        "a&b=c?d#e",
        "quote'\"",
        "semi;colon,comma:",
        "tilde~-_.",
        "back\\slash",
        "(paren)!*$@",
        "<xml>&amp;",
        "[brackets]{braces}|^`",
    ];
    let mut keys: Vec<String> = plain.map(str::to_owned).to_vec();
    // The longest that S3 takes, in parts that a file system takes too.
    let long: Vec<String> = (0..5).map(|part| format!("{part}").repeat(204)).collect();
    keys.push(long.join("/"));
    keys
}

/// The body of the large object.
#[must_use]
pub fn big() -> Vec<u8> {
    (0..BIG).map(|index| (index % 251) as u8).collect()
}

pub(super) fn put(key: &str, body: impl Into<bytes::Bytes>) -> Wire {
    Wire::object(Method::PUT, BUCKET, key).body(body)
}

pub(super) fn get(key: &str) -> Wire {
    Wire::object(Method::GET, BUCKET, key)
}

pub(super) fn head(key: &str) -> Wire {
    Wire::object(Method::HEAD, BUCKET, key)
}

pub(super) fn bucket() -> Wire {
    Wire::bucket(Method::GET, BUCKET)
}

fn scene(name: &str, objects: Vec<Wire>, rows: Vec<Wire>) -> Scene {
    let objects = objects.into_iter().map(|wire| Object { wire }).collect();
    let rows = rows.into_iter().map(Row::new).collect();
    Scene { name: name.to_owned(), writes: false, objects, rows }
}

/// One scene for each row: every one is cold.
fn each(name: &str, object: &Wire, rows: Vec<Wire>) -> Vec<Scene> {
    rows.into_iter().map(|row| scene(name, vec![object.clone()], vec![row])).collect()
}

/// All scenes of reads.
#[must_use]
pub fn scenes() -> Vec<Scene> {
    let mut scenes = Vec::new();
    for key in keys() {
        let object = put(&key, format!("the bytes of {key}"));
        let rows = vec![get(&key), head(&key), get(&key).header("range", "bytes=4-8")];
        scenes.extend(each("keys", &object, rows));
    }
    scenes.extend(each("ranges", &put("big", big()), ranges()));
    scenes.extend(conditions());
    scenes.extend(descriptions());
    scenes.extend(each("overrides", &put("small", "a few bytes"), overrides()));
    scenes.push(scene("missing", vec![put("there", "x")], missing()));
    scenes.push(scene("sub-resources", vec![put("there", "x")], sub_resources()));
    scenes.push(scene("presigned", vec![put("there", "x")], presigned()));
    scenes.extend(listings());
    scenes
}

fn ranges() -> Vec<Wire> {
    let ranges = [
        "bytes=0-0",
        "bytes=0-65535",
        "bytes=65535-65536",
        "bytes=100-",
        "bytes=-100",
        "bytes=299999-299999",
        "bytes=299990-400000",
        "bytes=300000-",
        "bytes=400000-500000",
        "bytes=-400000",
        "bytes=-0",
        "bytes=5-2",
        "bytes=0-1,5-6",
        "bytes=abc",
        "lines=0-1",
    ];
    let mut rows: Vec<Wire> =
        ranges.iter().map(|range| get("big").header("range", range)).collect();
    rows.push(head("big").header("range", "bytes=10-19"));
    rows.push(head("big").header("range", "bytes=300000-"));
    rows.push(get("big").header("range", "bytes=5-14").header("if-range", OTHER));
    rows
}

/// `{etag}` is the object's tag, which a first row captures.
fn conditions() -> Vec<Scene> {
    let rows: [&[(&str, &str)]; 18] = [
        &[("if-match", "{etag}")],
        &[("if-match", OTHER)],
        &[("if-match", "*")],
        &[("if-match", "\"x\", {etag}")],
        &[("if-none-match", "{etag}")],
        &[("if-none-match", OTHER)],
        &[("if-none-match", "*")],
        &[("if-none-match", "W/{etag}")],
        &[("if-none-match", "\"x\", {etag}")],
        &[("if-modified-since", PAST)],
        &[("if-modified-since", FUTURE)],
        &[("if-unmodified-since", PAST)],
        &[("if-unmodified-since", FUTURE)],
        &[("if-modified-since", "yesterday")],
        &[("if-match", "{etag}"), ("if-unmodified-since", PAST)],
        &[("if-none-match", OTHER), ("if-modified-since", FUTURE)],
        &[("if-match", "{etag}"), ("range", "bytes=5-14")],
        &[("if-none-match", "{etag}"), ("range", "bytes=900000-")],
    ];
    let mut scenes = Vec::new();
    for headers in rows {
        for ask in [get("big"), head("big")] {
            let object = Object { wire: put("big", big()) };
            let first = head("other").header("x-amz-meta-ignored", "x");
            let tag = Row::new(head("big")).capture("etag", Capture::Header("etag"));
            let asked = headers.iter().fold(ask, |ask, (name, value)| ask.header(name, value));
            let rows = vec![Row::new(first), tag, Row::new(asked)];
            let name = "conditions".to_owned();
            scenes.push(Scene { name, writes: false, objects: vec![object], rows });
        }
    }
    scenes
}

/// Objects with everything that S3 keeps of them.
fn descriptions() -> Vec<Scene> {
    let full = put("full", "a body")
        .header("content-type", "application/x-shard; charset=utf-8")
        .header("cache-control", "max-age=60, public")
        .header("content-disposition", "attachment; filename=\"a b.txt\"")
        .header("content-encoding", "br")
        .header("content-language", "de, en")
        .header("expires", FUTURE)
        .header("x-amz-meta-colour", "blue")
        .header("x-amz-meta-empty", "")
        .header("x-amz-meta-q", "=?UTF-8?Q?=C3=A4?=")
        .header("x-amz-storage-class", "STANDARD");
    let tagged = put("tagged", "a body").header("x-amz-tagging", "c=d");
    let sum = crate::double::digest::base64(&crate::double::digest::crc32(b"a body").to_be_bytes());
    let checked = put("checked", "a body").header("x-amz-checksum-crc32", &sum);
    let mode = |ask: Wire| ask.header("x-amz-checksum-mode", "ENABLED");
    let mut scenes = Vec::new();
    let part = |wire: Wire| wire.header("range", "bytes=1-3");
    scenes.extend(each("described", &full, vec![get("full"), head("full"), part(get("full"))]));
    scenes.extend(each("tagged", &tagged, vec![get("tagged"), head("tagged")]));
    let checks = vec![
        get("checked"),
        mode(get("checked")),
        mode(head("checked")),
        mode(part(get("checked"))),
    ];
    scenes.extend(each("checked", &checked, checks));
    scenes.extend(each(
        "empty",
        &put("empty", ""),
        vec![
            get("empty"),
            head("empty"),
            get("empty").header("range", "bytes=0-"),
            get("empty").header("range", "bytes=-1"),
        ],
    ));
    let zipped = put("zipped", vec![0x1f, 0x8b, 8, 0, 1]).header("content-encoding", "gzip");
    let accepting = get("zipped").header("accept-encoding", "gzip, br");
    scenes.extend(each("zipped", &zipped, vec![get("zipped"), accepting]));
    let numbers = ["1", "2", "0", "x"];
    let rows = numbers.map(|number| get("one").query("partNumber", number)).to_vec();
    scenes.extend(each("part numbers", &put("one", "of one part"), rows));
    scenes
}

fn overrides() -> Vec<Wire> {
    let overrides = [
        ("response-content-type", "text/plain"),
        ("response-content-language", "en"),
        ("response-content-encoding", "br"),
        ("response-content-disposition", "attachment; filename=\"ä.txt\""),
        ("response-cache-control", "no-store"),
        ("response-expires", "Thu, 01 Dec 1994 16:00:00 GMT"),
    ];
    let mut rows: Vec<Wire> =
        overrides.iter().map(|(name, value)| get("small").query(name, value)).collect();
    rows.push(head("small").query("response-content-type", "text/plain"));
    rows.push(get("small").query("versionId", "null"));
    rows
}

fn missing() -> Vec<Wire> {
    let nowhere = |method, key: Option<&str>| Wire {
        key: key.map(str::to_owned),
        ..Wire::bucket(method, "no-such-bucket-anywhere")
    };
    vec![
        get("missing"),
        head("missing"),
        get("missing").header("range", "bytes=0-1"),
        get("missing").header("if-none-match", "*"),
        get("there/below"),
        get("missing").query("versionId", "null"),
        nowhere(Method::GET, None),
        nowhere(Method::HEAD, None),
        nowhere(Method::GET, Some("k")),
        nowhere(Method::HEAD, Some("k")),
        nowhere(Method::GET, None).query("list-type", "2"),
        Wire::bucket(Method::HEAD, BUCKET),
    ]
}

fn sub_resources() -> Vec<Wire> {
    let of_buckets = [
        "accelerate",
        "acl",
        "cors",
        "encryption",
        "lifecycle",
        "location",
        "logging",
        "notification",
        "object-lock",
        "ownershipControls",
        "policy",
        "policyStatus",
        "publicAccessBlock",
        "replication",
        "requestPayment",
        "tagging",
        "uploads",
        "versioning",
        "versions",
        "website",
    ];
    let of_objects = ["acl", "tagging", "legal-hold", "retention"];
    let mut rows: Vec<Wire> = of_buckets.iter().map(|name| bucket().resource(name)).collect();
    rows.extend(of_objects.iter().map(|name| get("there").resource(name)));
    rows.extend(["acl", "tagging"].iter().map(|name| get("missing").resource(name)));
    rows.push(
        get("there").resource("attributes").header("x-amz-object-attributes", "ETag,ObjectSize"),
    );
    rows.push(get("there").query("uploadId", "no-such-upload"));
    rows
}

fn presigned() -> Vec<Wire> {
    let signed = |wire: Wire| wire.coding(Coding::Presigned(60));
    vec![
        signed(get("there")),
        signed(head("there")),
        signed(get("there").query("response-content-type", "a/b")),
        signed(get("there")).header("range", "bytes=0-0"),
        signed(get("missing")),
        signed(bucket().query("list-type", "2")),
        get("there").coding(Coding::Unsigned),
    ]
}

fn listings() -> Vec<Scene> {
    let names = [
        "a", "b/1", "b/2", "b/c/3", "d e/4", "f+g", "h%20i", "j/ä€", "k&l", "m//n", "o/p/q/r", "z",
    ];
    let objects: Vec<Wire> = names.iter().map(|key| put(key, *key)).collect();
    let parameters: [&[(&str, &str)]; 18] = [
        &[],
        &[("prefix", "b/")],
        &[("delimiter", "/")],
        &[("prefix", "b/"), ("delimiter", "/")],
        &[("prefix", "b"), ("delimiter", "/")],
        &[("prefix", "none")],
        &[("prefix", "j/ä")],
        &[("prefix", "d e")],
        &[("max-keys", "0")],
        &[("max-keys", "1")],
        &[("max-keys", "2"), ("delimiter", "/")],
        &[("max-keys", "5000")],
        &[("max-keys", "x")],
        &[("max-keys", "-1")],
        &[("encoding-type", "url")],
        &[("encoding-type", "url"), ("delimiter", "/"), ("prefix", "j/ä")],
        &[("encoding-type", "base64")],
        &[("delimiter", "c/")],
    ];
    let asked = |first: Wire, parameters: &[(&str, &str)]| {
        parameters.iter().fold(first, |ask, (name, value)| ask.query(name, value))
    };
    let second = || bucket().query("list-type", "2");
    let mut rows: Vec<Wire> = parameters.iter().map(|these| asked(bucket(), these)).collect();
    rows.extend(parameters.iter().map(|these| asked(second(), these)));
    rows.extend([
        bucket().query("marker", "b/2"),
        bucket().query("marker", "zz"),
        bucket().query("marker", "b/").query("delimiter", "/").query("max-keys", "2"),
        second().query("start-after", "b/2"),
        second().query("start-after", "d e").query("max-keys", "3"),
        second().query("fetch-owner", "true"),
        second().query("continuation-token", "no-such-token"),
        bucket().query("list-type", "3"),
        bucket().query("versions", "").query("prefix", "b/"),
    ]);
    let mut scenes = vec![scene("listings", objects.clone(), rows)];
    let objects = objects.into_iter().map(|wire| Object { wire }).collect();
    let first = second().query("max-keys", "4");
    let next = second().query("max-keys", "4").query("continuation-token", "{token}");
    let token = Capture::Element("NextContinuationToken");
    let rows = vec![
        Row::new(first).capture("token", token),
        Row::new(next.clone()).capture("token", token),
    ];
    scenes.push(Scene { name: "pages".to_owned(), writes: false, objects, rows });
    scenes.push(scene(
        "empty bucket",
        Vec::new(),
        vec![bucket(), second(), bucket().resource("uploads")],
    ));
    scenes
}
