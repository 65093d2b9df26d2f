//! Requests that change something, in scenes that tell a story: each step runs at the origin on one
//! of two twin buckets, and through the proxy on the other.

use super::reads::{BIG, big, bucket, get, head, put};
use super::{BUCKET, Capture, Object, Row, Scene};
use crate::double::digest;
use crate::wire::{Coding, Wire};
use http::Method;

const OTHER: &str = "\"0123456789abcdef0123456789abcdef\"";
/// The smallest part that S3 takes, but for the last.
const PART: usize = 5 << 20;

fn scene(name: &str, objects: Vec<Wire>, rows: Vec<Row>) -> Scene {
    let objects = objects.into_iter().map(|wire| Object { wire }).collect();
    Scene { name: name.to_owned(), writes: true, objects, rows }
}

fn rows(wires: Vec<Wire>) -> Vec<Row> {
    wires.into_iter().map(Row::new).collect()
}

fn delete(key: &str) -> Wire {
    Wire::object(Method::DELETE, BUCKET, key)
}

fn post(key: &str) -> Wire {
    Wire::object(Method::POST, BUCKET, key)
}

fn copy(source: &str, to: &str) -> Wire {
    let source = format!("/{BUCKET}/{}", crate::sigv4::escaped_path(source));
    put(to, "").header("x-amz-copy-source", &source)
}

fn md5(wire: Wire) -> Wire {
    let sum = digest::content_md5(&wire.body);
    wire.header("content-md5", &sum)
}

fn crc(body: &[u8]) -> String {
    digest::base64(&digest::crc32(body).to_be_bytes())
}

/// All scenes of writes.
#[must_use]
pub fn scenes() -> Vec<Scene> {
    vec![
        codings(),
        odd_keys(),
        described(),
        refused(),
        conditional(),
        overwritten(),
        deleted(),
        deleted_at_once(),
        copied(),
        uploaded_in_parts(),
        parts_gone_wrong(),
        parts_copied(),
        tags_and_grants(),
        versions(),
        settings(),
        buckets(),
    ]
}

fn codings() -> Scene {
    let all = [
        ("signed", Coding::Signed),
        ("unsigned", Coding::Unsigned),
        ("presigned", Coding::Presigned(60)),
        ("chunked", Coding::Chunked(65_536)),
        ("chunked-trailer", Coding::ChunkedTrailer(65_536)),
        ("unsigned-trailer", Coding::UnsignedTrailer(65_536)),
    ];
    let mut steps = Vec::new();
    for (key, coding) in all {
        steps.extend([put(key, big()).coding(coding), head(key), get(key)]);
    }
    steps.push(put("empty", "").coding(Coding::UnsignedTrailer(8_192)));
    steps.push(get("empty"));
    let zipped = put("zipped", vec![0x1f, 0x8b, 8, 0, 1]).coding(Coding::UnsignedTrailer(8_192));
    steps.push(zipped.header("content-encoding", "aws-chunked,gzip"));
    steps.push(head("zipped"));
    steps.push(bucket().query("list-type", "2"));
    scene("codings of a body", Vec::new(), rows(steps))
}

fn odd_keys() -> Scene {
    let keys = ["a b", "a+b", "a%2Fb", "c//d", "ä€/日本語", "q?x=1&y=2#z", "e/../f", "trail/"];
    let mut steps = Vec::new();
    for key in keys {
        steps.extend([put(key, key), get(key), copy(key, "copied"), get("copied"), delete(key)]);
        steps.push(head(key));
    }
    scene("odd keys", Vec::new(), rows(steps))
}

fn described() -> Scene {
    let full = put("full", "a body")
        .header("content-type", "application/x-shard")
        .header("cache-control", "max-age=60")
        .header("content-disposition", "inline")
        .header("content-encoding", "br")
        .header("content-language", "de")
        .header("expires", "Fri, 01 Jan 2100 00:00:00 GMT")
        .header("x-amz-meta-colour", "blue")
        .header("x-amz-meta-Two-Words", "a, b")
        .header("x-amz-storage-class", "STANDARD_IA")
        // One: versitygw tells several in any order.
        .header("x-amz-tagging", "c=d%20e");
    let steps = vec![
        full,
        get("full"),
        head("full"),
        get("full").resource("tagging"),
        put("summed", "a body").header("x-amz-checksum-crc32", &crc(b"a body")),
        head("summed").header("x-amz-checksum-mode", "ENABLED"),
        md5(put("digest", "a body")),
        head("digest"),
        put("granted", "a body").header("x-amz-acl", "public-read"),
        get("granted").resource("acl"),
        put("typed", "a body").header("content-type", ""),
        head("typed"),
        put("plain", "a body"),
        head("plain"),
    ];
    scene("descriptions written", Vec::new(), rows(steps))
}

fn refused() -> Scene {
    let wrong = "AAAAAA==";
    let steps = vec![
        put("k", "a body").header("content-md5", &digest::content_md5(b"another")),
        put("k", "a body").header("content-md5", "not base64"),
        put("k", "a body").header("x-amz-checksum-crc32", wrong),
        put("k", "a body").header("x-amz-acl", "no-such-grant"),
        put("k", "a body").header("x-amz-storage-class", "NO_SUCH_CLASS"),
        put("k", "a body").header("x-amz-tagging", "a=b&a=c"),
        head("k"),
        put("k", "<not xml").resource("tagging"),
        put("k", "<Tagging/>").resource("tagging"),
        put("k", "<not xml").resource("acl"),
        Wire { key: None, ..put("", "<not xml").resource("versioning") },
        Wire { key: None, ..put("", "{}").resource("policy") },
        Wire { bucket: "no-such-bucket-anywhere".into(), ..put("k", "x") },
        Wire { bucket: "no-such-bucket-anywhere".into(), ..delete("k") },
        post("k"),
        bucket(),
    ];
    let mut steps = rows(steps);
    let granted = post("k").resource("uploads").header("x-amz-acl", "no-such-grant");
    steps.push(Row::new(granted).capture("upload", Capture::Element("UploadId")));
    scene("writes refused", Vec::new(), steps)
}

fn conditional() -> Scene {
    let tagged = |name| Row::new(head("k")).capture(name, Capture::Header("etag"));
    let mut steps = vec![Row::new(put("k", "one").header("if-none-match", "*"))];
    steps.push(Row::new(put("k", "two").header("if-none-match", "*")));
    steps.push(tagged("first"));
    steps.push(Row::new(put("k", "three").header("if-match", OTHER)));
    steps.push(Row::new(get("k")));
    steps.push(Row::new(put("k", "four").header("if-match", "{first}")));
    steps.push(Row::new(get("k")));
    steps.push(Row::new(put("missing", "five").header("if-match", OTHER)));
    steps.push(Row::new(delete("k").header("if-match", OTHER)));
    steps.push(Row::new(head("k")));
    scene("conditional writes", Vec::new(), steps)
}

/// Every write is read at once, by GET, by HEAD, by range and by list.
fn overwritten() -> Scene {
    let mut steps = Vec::new();
    for (number, size) in [10, 70_000, 0, BIG, 10].into_iter().enumerate() {
        let mut body = big();
        body.truncate(size);
        body.iter_mut().for_each(|byte| *byte ^= number as u8);
        steps.push(put("k", body).header("x-amz-meta-number", &number.to_string()));
        steps.extend([get("k"), head("k"), get("k").header("range", "bytes=1-5")]);
        steps.push(bucket().query("list-type", "2"));
    }
    scene("overwritten", vec![put("k", "before")], rows(steps))
}

fn deleted() -> Scene {
    let steps = vec![
        get("k"),
        delete("k"),
        get("k"),
        head("k"),
        delete("k"),
        delete("never"),
        bucket(),
        put("k", "again"),
        get("k"),
        delete("k").coding(Coding::Presigned(60)),
        get("k"),
        delete("other").query("versionId", "null"),
        head("other"),
    ];
    scene("deleted", vec![put("k", "a body"), put("other", "x")], rows(steps))
}

fn deleted_at_once() -> Scene {
    let many = |body: &str| Wire {
        key: None,
        ..post("").resource("delete").body(format!("<Delete>{body}</Delete>"))
    };
    let object = |key: &str| format!("<Object><Key>{key}</Key></Object>");
    let first = object("a") + &object("b c") + &object("never");
    let crowd: Vec<String> = (0..1_001).map(|number| object(&format!("k{number}"))).collect();
    let steps = vec![
        get("a"),
        md5(many(&first)),
        get("a"),
        head("b c"),
        md5(many(&format!("<Quiet>true</Quiet>{}", object("ä&amp;€")))),
        bucket().query("list-type", "2"),
        many(&object("d")).header("x-amz-checksum-crc32", &crc(many(&object("d")).body.as_ref())),
        head("d"),
        many(&object("after a trailer")).coding(Coding::UnsignedTrailer(8_192)),
        head("after a trailer"),
        delete("after a trailer"),
        md5(many("")),
        md5(many(&crowd.concat())),
        md5(Wire { key: None, ..post("").resource("delete").body("<Delete><Object>") }),
        bucket(),
    ];
    let objects =
        ["a", "b c", "ä&€", "d", "after a trailer", "f"].map(|key| put(key, key)).to_vec();
    scene("deleted at once", objects, rows(steps))
}

fn copied() -> Scene {
    let replaced = |wire: Wire| {
        wire.header("x-amz-metadata-directive", "REPLACE")
            .header("content-type", "x/replaced")
            .header("x-amz-meta-new", "yes")
    };
    let steps = vec![
        copy("from", "to"),
        get("to"),
        head("to"),
        replaced(copy("from", "to")),
        head("to"),
        copy("from", "from"),
        replaced(copy("from", "from")),
        head("from"),
        copy("missing", "to"),
        copy("from", "to").header("x-amz-copy-source-if-match", OTHER),
        copy("from", "to").header("x-amz-copy-source-if-none-match", OTHER),
        put("to", "").header("x-amz-copy-source", "no-such-bucket-anywhere/k"),
        put("to", "").header("x-amz-copy-source", "nonsense"),
        copy("a b+c", "to"),
        get("to"),
        bucket(),
    ];
    let described =
        put("from", "a body").header("x-amz-meta-old", "yes").header("content-type", "x/y");
    scene("copied", vec![described, put("a b+c", "odd")], rows(steps))
}

/// A completion's body; tags by their names.
fn complete(key: &str, parts: &[(u32, &str)]) -> Wire {
    let part = |(number, tag): &(u32, &str)| {
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
    };
    let list: String = parts.iter().map(part).collect();
    let list = format!(
        "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{list}\
         </CompleteMultipartUpload>"
    );
    post(key).query("uploadId", "{upload}").body(list)
}

fn part(key: &str, number: u32, body: impl Into<bytes::Bytes>) -> Wire {
    put(key, body).query("partNumber", &number.to_string()).query("uploadId", "{upload}")
}

fn uploads(key: &str) -> Row {
    Row::new(post(key).resource("uploads").header("x-amz-meta-parts", "yes"))
        .capture("upload", Capture::Element("UploadId"))
}

fn uploaded_in_parts() -> Scene {
    let first: Vec<u8> = (0..PART).map(|index| (index % 253) as u8).collect();
    let tag = |name| Capture::Header(name);
    let steps = vec![
        uploads("big file"),
        Row::new(part("big file", 1, first.clone()).coding(Coding::UnsignedTrailer(1 << 20)))
            .capture("one", tag("etag")),
        Row::new(part("big file", 2, "the end")).capture("two", tag("etag")),
        Row::new(get("big file").query("uploadId", "{upload}")),
        Row::new(bucket().resource("uploads")),
        Row::new(head("big file")),
        Row::new(complete("big file", &[(1, "{one}"), (2, "{two}")])),
        Row::new(get("big file")),
        Row::new(head("big file")),
        Row::new(get("big file").header("range", "bytes=5242870-5242889")),
        Row::new(get("big file").query("partNumber", "1")),
        Row::new(get("big file").query("partNumber", "2")),
        Row::new(head("big file").query("partNumber", "2")),
        Row::new(bucket().query("list-type", "2")),
        Row::new(bucket().resource("uploads")),
        uploads("big file"),
        Row::new(part("big file", 1, "only one")).capture("one", tag("etag")),
        Row::new(complete("big file", &[(1, "{one}")])),
        Row::new(get("big file")),
    ];
    scene("uploaded in parts", vec![put("big file", "before")], steps)
}

fn parts_gone_wrong() -> Scene {
    let tag = |name| Capture::Header(name);
    let steps = vec![
        uploads("k"),
        Row::new(part("k", 1, "small")).capture("one", tag("etag")),
        Row::new(part("k", 2, "small too")).capture("two", tag("etag")),
        Row::new(complete("k", &[(1, "{one}"), (2, "{two}")])),
        Row::new(complete("k", &[(2, "{two}"), (1, "{one}")])),
        Row::new(complete("k", &[(1, OTHER)])),
        Row::new(complete("k", &[(3, "{one}")])),
        Row::new(complete("k", &[])),
        Row::new(post("k").query("uploadId", "{upload}").body("<CompleteMultipartUpload><Part>")),
        Row::new(part("k", 0, "x")),
        Row::new(part("k", 10_001, "x")),
        Row::new(get("k").query("uploadId", "{upload}")),
        Row::new(part("k", 3, "x").header("content-md5", &digest::content_md5(b"y"))),
        Row::new(delete("k").query("uploadId", "{upload}")),
        Row::new(delete("k").query("uploadId", "{upload}")),
        Row::new(put("k", "x").query("partNumber", "1").query("uploadId", "no-such-upload")),
        Row::new(get("k").query("uploadId", "{upload}")),
        Row::new(get("k")),
    ];
    scene("parts gone wrong", Vec::new(), steps)
}

fn parts_copied() -> Scene {
    let source = |wire: Wire| wire.header("x-amz-copy-source", &format!("/{BUCKET}/from%20here"));
    let range = |wire: Wire| wire.header("x-amz-copy-source-range", "bytes=0-5242879");
    let tag = Capture::Element("ETag");
    let steps = vec![
        uploads("to"),
        Row::new(range(source(part("to", 1, "")))).capture("one", tag),
        Row::new(source(part("to", 2, "")).header("x-amz-copy-source-range", "bytes=9-12"))
            .capture("two", tag),
        Row::new(source(part("to", 3, "")).header("x-amz-copy-source-range", "bytes=9-99999999")),
        Row::new(complete("to", &[(1, "{one}"), (2, "{two}")])),
        Row::new(get("to")),
        Row::new(head("to")),
    ];
    let body: Vec<u8> = (0..PART + 100).map(|index| (index % 249) as u8).collect();
    scene("parts copied", vec![put("from here", body)], steps)
}

fn tags_and_grants() -> Scene {
    let tags = |text: &str| {
        let tag = format!("<Tag><Key>{text}</Key><Value>v</Value></Tag>");
        format!("<Tagging><TagSet>{tag}</TagSet></Tagging>")
    };
    let of_bucket = |wire: Wire| Wire { key: None, ..wire };
    let steps = vec![
        put("k", tags("a")).resource("tagging"),
        get("k").resource("tagging"),
        get("k"),
        head("k"),
        delete("k").resource("tagging"),
        get("k").resource("tagging"),
        put("k", tags("ä &amp; b")).resource("tagging"),
        get("k").resource("tagging"),
        put("missing", tags("a")).resource("tagging"),
        of_bucket(md5(put("", tags("a"))).resource("tagging")),
        bucket().resource("tagging"),
        of_bucket(delete("").resource("tagging")),
        bucket().resource("tagging"),
        put("k", "").resource("acl").header("x-amz-acl", "public-read"),
        get("k").resource("acl"),
        bucket().resource("acl"),
    ];
    scene("tags and grants", vec![put("k", "a body")], rows(steps))
}

fn versions() -> Scene {
    let on = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let version = |name| Capture::Header(name);
    let of = |wire: Wire, name: &str| wire.query("versionId", &format!("{{{name}}}"));
    let id = "x-amz-version-id";
    let steps = vec![
        Row::new(Wire { key: None, ..put("", on).resource("versioning") }),
        Row::new(bucket().resource("versioning")),
        Row::new(get("k")),
        Row::new(put("k", "two")).capture("second", version(id)),
        Row::new(get("k")),
        Row::new(put("k", "three")).capture("third", version(id)),
        Row::new(head("k")),
        Row::new(of(get("k"), "second")),
        Row::new(of(get("k"), "second")),
        Row::new(of(head("k"), "third")),
        Row::new(get("k").query("versionId", "null")),
        Row::new(get("k").query("versionId", "no-such-version")),
        Row::new(delete("k")).capture("marker", version(id)),
        Row::new(get("k")),
        Row::new(head("k")),
        Row::new(of(get("k"), "marker")),
        Row::new(of(get("k"), "third")),
        Row::new(bucket().resource("versions")),
        Row::new(bucket().resource("versions").query("max-keys", "2")),
        Row::new(bucket().query("list-type", "2")),
        Row::new(of(delete("k"), "marker")),
        Row::new(get("k")),
        Row::new(of(delete("k"), "third")),
        Row::new(get("k")),
        Row::new(of(get("k"), "third")),
        Row::new(put("old", "").header("x-amz-copy-source", "/{bucket}/k?versionId={second}"))
            .capture("copied", version(id)),
        Row::new(get("old")),
    ];
    scene("versions", vec![put("k", "one")], steps)
}

/// Sub-resources of a bucket, written and read back.
fn settings() -> Scene {
    let policy = format!(
        "{{\"Version\":\"2012-10-17\",\"Statement\":[{{\"Effect\":\"Allow\",\"Principal\":\"*\",\
         \"Action\":\"s3:GetObject\",\"Resource\":\"arn:aws:s3:::{BUCKET}/*\"}}]}}"
    );
    let cors = "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*\
                </AllowedOrigin></CORSRule></CORSConfiguration>";
    let lifecycle = "<LifecycleConfiguration><Rule><ID>r</ID><Filter><Prefix>x</Prefix></Filter>\
                     <Status>Enabled</Status><Expiration><Days>3</Days></Expiration></Rule>\
                     </LifecycleConfiguration>";
    let mut steps = Vec::new();
    for (name, body) in [("policy", policy.as_str()), ("cors", cors), ("lifecycle", lifecycle)] {
        let of_bucket = |wire: Wire| Wire { key: None, ..wire };
        steps.push(of_bucket(md5(put("", body.to_owned())).resource(name)));
        steps.push(bucket().resource(name));
        steps.push(of_bucket(delete("").resource(name)));
        steps.push(bucket().resource(name));
    }
    // The policy names the bucket: its digest must be of what is sent.
    steps[0].headers.clear();
    scene("settings", Vec::new(), rows(steps))
}

fn buckets() -> Scene {
    let other = format!("{BUCKET}-more");
    let wire = |method| Wire::bucket(method, &other);
    let steps = vec![
        wire(Method::PUT),
        wire(Method::HEAD),
        Wire { bucket: other.clone(), ..put("k", "x") },
        wire(Method::DELETE),
        Wire { bucket: other.clone(), ..delete("k") },
        wire(Method::DELETE),
        wire(Method::HEAD),
    ];
    scene("buckets", Vec::new(), rows(steps))
}
