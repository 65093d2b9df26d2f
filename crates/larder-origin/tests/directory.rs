//! The directory origin: what is served, what is written, and what never gets out.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics, also in its helpers")]

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue};
use larder_model::{
    BucketName, ByteRange, ETag, FetchRequest, Fetched, HeadRequest, ListDialect, ListRequest,
    ObjectKey, ObjectMeta, ObjectName, Origin as _, OriginError, OriginName, VersionId,
};
use larder_origin::{DirectoryOrigin, Precondition, PutRequest, UploadId};
use prometheus::Registry;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: usize = 1024 * 1024;

/// A root with the bucket `bucket`.
struct Fixture {
    root: TempDir,
    origin: DirectoryOrigin,
}

fn fixture() -> Fixture {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("bucket")).unwrap();
    let origin = open(root.path());
    Fixture { root, origin }
}

fn open(root: &Path) -> DirectoryOrigin {
    DirectoryOrigin::open(OriginName::new("dir").unwrap(), root, &Registry::new()).unwrap()
}

fn bucket() -> BucketName {
    BucketName::new("bucket").unwrap()
}

fn key(key: &str) -> ObjectKey {
    ObjectKey::new(key).unwrap()
}

fn request(name: &str) -> FetchRequest {
    let name = ObjectName {
        origin: OriginName::new("dir").unwrap(),
        bucket: bucket(),
        key: key(name),
        version_id: None,
    };
    FetchRequest { name, range: None, if_match: None, part_number: None, checksums: false }
}

async fn drain(mut fetched: Fetched) -> Result<Bytes, OriginError> {
    let mut bytes = Vec::new();
    while let Some(piece) = fetched.body.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(bytes.into())
}

fn pieces(pieces: &[&[u8]]) -> stream::BoxStream<'static, io::Result<Bytes>> {
    let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    stream::iter(pieces).boxed()
}

impl Fixture {
    fn bucket(&self) -> PathBuf {
        self.root.path().join("bucket")
    }

    fn write(&self, key: &str, bytes: impl AsRef<[u8]>) {
        let path = self.bucket().join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    async fn get(&self, key: &str) -> Result<Bytes, OriginError> {
        drain(self.origin.fetch(request(key)).await?).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, OriginError> {
        let name = request(key).name;
        self.origin.head(HeadRequest { name, part_number: None, checksums: false }).await
    }

    async fn put(&self, name: &str, bytes: &[u8]) -> Result<ETag, OriginError> {
        self.put_if(name, bytes, Precondition::None).await
    }

    async fn put_if(
        &self,
        name: &str,
        bytes: &[u8],
        precondition: Precondition,
    ) -> Result<ETag, OriginError> {
        let request = PutRequest { precondition, ..put_request(name) };
        self.origin.put(request, pieces(&[bytes])).await
    }

    async fn keys(&self) -> Vec<String> {
        let request = ListRequest {
            bucket: bucket(),
            dialect: ListDialect::V2,
            prefix: String::new(),
            delimiter: None,
            max_keys: 1000,
            marker: None,
            token: None,
            start_after: None,
            fetch_owner: false,
        };
        let page = self.origin.list(request).await.unwrap();
        page.objects.iter().map(|object| object.key.to_string()).collect()
    }

    /// The files below the bucket's private folder.
    fn private(&self, folder: &str) -> Vec<PathBuf> {
        fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { collect(&path, files) } else { files.push(path) }
            }
        }
        let mut files = Vec::new();
        collect(&self.bucket().join(".larder").join(folder), &mut files);
        files
    }
}

fn put_request(name: &str) -> PutRequest {
    PutRequest {
        bucket: bucket(),
        key: key(name),
        headers: HeaderMap::new(),
        length: None,
        md5: None,
        precondition: Precondition::None,
    }
}

fn code<T>(result: Result<T, OriginError>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(OriginError::NotFound(reply) | OriginError::Refused(reply)) => {
            format!("{} {}", reply.status, reply.code)
        }
        Err(other) => format!("{other:?}"),
    }
}

fn tmp_is_empty(fixture: &Fixture) -> bool {
    fixture.private("tmp").is_empty()
}

// Reading.

#[tokio::test]
async fn a_file_is_an_object() {
    let fixture = fixture();
    let content: Vec<u8> = (0..3 * MIB + 7).map(|i| (i / 7) as u8).collect();
    fixture.write("a/b.json", &content);
    assert_eq!(fixture.get("a/b.json").await.unwrap(), content);
    let meta = fixture.head("a/b.json").await.unwrap();
    assert_eq!(meta.size, content.len() as u64);
    assert_eq!(meta.headers["content-type"], "application/json");
    assert_eq!(meta.headers["etag"], meta.etag.as_ref().unwrap().as_str());
    assert!(meta.last_modified().is_some() && meta.version().is_some());
    let tag = meta.etag.unwrap();
    assert!(tag.as_str().ends_with("-d\"") && tag.as_str().len() == 36, "{tag}");
}

#[tokio::test]
async fn ranges_are_clipped_and_checked() {
    let fixture = fixture();
    fixture.write("key", "0123456789");
    for (range, expected) in [((0, 4), "0123"), ((4, 100), "456789"), ((9, 10), "9")] {
        let range = ByteRange::new(range.0, range.1);
        let fetched = fixture.origin.fetch(FetchRequest { range, ..request("key") }).await.unwrap();
        assert_eq!(fetched.range, range.unwrap().clip(10));
        assert_eq!(fetched.meta.size, 10);
        assert_eq!(drain(fetched).await.unwrap(), expected);
    }
    let behind = FetchRequest { range: ByteRange::new(10, 11), ..request("key") };
    let failed = fixture.origin.fetch(behind).await.err().unwrap();
    assert!(matches!(failed, OriginError::RangeNotSatisfiable { size: Some(10), .. }));
}

#[tokio::test]
async fn an_empty_file_is_an_empty_object() {
    let fixture = fixture();
    fixture.write("key", "");
    let fetched = fixture.origin.fetch(request("key")).await.unwrap();
    assert_eq!((fetched.range, fetched.meta.size), (None, 0));
    assert_eq!(drain(fetched).await.unwrap(), "");
    let ranged = FetchRequest { range: ByteRange::new(0, 1), ..request("key") };
    let failed = fixture.origin.fetch(ranged).await.err().unwrap();
    assert!(matches!(failed, OriginError::RangeNotSatisfiable { size: Some(0), .. }));
}

#[tokio::test]
async fn conditions_versions_and_parts_are_checked() {
    let fixture = fixture();
    fixture.write("key", "x");
    let tag = fixture.head("key").await.unwrap().etag;
    let with = |if_match| FetchRequest { if_match, ..request("key") };
    assert!(fixture.origin.fetch(with(tag)).await.is_ok());
    let other = fixture.origin.fetch(with(ETag::new("\"other\""))).await;
    assert!(matches!(other, Err(OriginError::VersionChanged)));

    let part = |part_number| FetchRequest { part_number, ..request("key") };
    assert!(fixture.origin.fetch(part(Some(1))).await.is_ok());
    assert_eq!(code(fixture.origin.fetch(part(Some(2))).await), "416 InvalidPartNumber");

    let mut versioned = request("key");
    versioned.name.version_id = VersionId::new("null").ok();
    assert!(fixture.origin.fetch(versioned.clone()).await.is_ok());
    versioned.name.version_id = VersionId::new("v1").ok();
    assert_eq!(code(fixture.origin.fetch(versioned).await), "404 NoSuchVersion");
}

#[tokio::test]
async fn what_is_missing_is_told() {
    let fixture = fixture();
    fixture.write("folder/key", "x");
    for missing in ["none", "folder", "folder/key/below", "folder/none"] {
        assert_eq!(code(fixture.get(missing).await), "404 NoSuchKey", "{missing}");
    }
    let mut elsewhere = request("key");
    elsewhere.name.bucket = BucketName::new("other").unwrap();
    assert_eq!(code(fixture.origin.fetch(elsewhere).await), "404 NoSuchBucket");
}

#[tokio::test]
async fn buckets_are_the_sub_folders() {
    let fixture = fixture();
    fs::create_dir(fixture.root.path().join("another")).unwrap();
    fs::create_dir(fixture.root.path().join("no bucket")).unwrap();
    fs::write(fixture.root.path().join("a-file"), "").unwrap();
    symlink(fixture.bucket(), fixture.root.path().join("linked")).unwrap();
    let buckets = fixture.origin.list_buckets().await.unwrap();
    let names: Vec<_> = buckets.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["another", "bucket"]);
    assert!(fixture.origin.head_bucket(&bucket()).await.is_ok());
    for missing in ["linked", "a-file", "none"] {
        let missing = BucketName::new(missing).unwrap();
        assert_eq!(code(fixture.origin.head_bucket(&missing).await), "404 NoSuchBucket");
    }
    assert_eq!(fixture.origin.bucket_location(&bucket()).await.unwrap(), "");
}

// Staying inside.

#[tokio::test]
async fn no_spelling_of_a_key_leads_out() {
    let fixture = fixture();
    fs::write(fixture.root.path().join("secret"), "secret").unwrap();
    fixture.write("a/b", "x");
    fixture.write(".larder/private", "secret");
    let absolute = fixture.root.path().join("secret").display().to_string();
    for odd in [
        "../secret",
        "..",
        ".",
        "a/../../secret",
        "./a/b",
        "a/./b",
        "a//b",
        "/a/b",
        "a/b/",
        "../bucket/a/b",
        "a/b\0",
        ".larder/private",
        ".larder",
        &absolute,
        &"x".repeat(256),
    ] {
        assert_eq!(code(fixture.get(odd).await), "404 NoSuchKey", "{odd}");
        assert_eq!(code(fixture.put(odd, b"new").await), "400 InvalidArgument", "{odd}");
        fixture.origin.delete(&bucket(), &key(odd)).await.unwrap();
    }
    assert_eq!(fs::read_to_string(fixture.root.path().join("secret")).unwrap(), "secret");
    assert_eq!(fixture.keys().await, ["a/b"]);
    assert_eq!(fs::read_to_string(fixture.bucket().join("a/b")).unwrap(), "x");
}

#[tokio::test]
async fn links_are_followed_inside_the_bucket_only() {
    let fixture = fixture();
    let (root, inside) = (fixture.root.path().to_path_buf(), fixture.bucket());
    fs::create_dir(root.join("other")).unwrap();
    fs::write(root.join("other/secret"), "secret").unwrap();
    fixture.write("real/file", "inside");
    fixture.write(".larder/private", "secret");
    symlink("real/file", inside.join("relative")).unwrap();
    symlink(inside.join("real/file"), inside.join("absolute")).unwrap();
    symlink("relative", inside.join("twice")).unwrap();
    symlink(root.join("other/secret"), inside.join("out")).unwrap();
    symlink("../other/secret", inside.join("real/up")).unwrap();
    symlink(".larder/private", inside.join("private")).unwrap();
    symlink("real", inside.join("folder")).unwrap();
    symlink(root.join("other"), inside.join("elsewhere")).unwrap();
    symlink("loop", inside.join("loop")).unwrap();
    symlink("nowhere", inside.join("dangling")).unwrap();
    symlink("..", inside.join("real/parent")).unwrap();
    for visible in ["relative", "absolute", "twice"] {
        assert_eq!(fixture.get(visible).await.unwrap(), "inside", "{visible}");
    }
    for hidden in [
        "out",
        "real/up",
        "private",
        "folder",
        "folder/file",
        "elsewhere/secret",
        "loop",
        "dangling",
        "real/parent/real/file",
    ] {
        assert_eq!(code(fixture.get(hidden).await), "404 NoSuchKey", "{hidden}");
    }
    assert_eq!(fixture.keys().await, ["absolute", "real/file", "relative", "twice"]);
    assert_eq!(code(fixture.put("elsewhere/new", b"x").await), "400 InvalidArgument");
    fixture.origin.delete(&bucket(), &key("elsewhere/secret")).await.unwrap();
    assert_eq!(fs::read_to_string(root.join("other/secret")).unwrap(), "secret");
    // A write replaces the link, not what it leads to.
    fixture.put("absolute", b"new").await.unwrap();
    assert_eq!(fixture.get("relative").await.unwrap(), "inside");
}

#[tokio::test]
async fn what_is_no_regular_file_is_not_even_opened() {
    let fixture = fixture();
    let pipe = fixture.bucket().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let odd = std::ffi::OsStr::from_bytes(b"not-\xff-utf8");
    fs::write(fixture.bucket().join(odd), "x").unwrap();
    let deep = fixture.bucket().join(vec!["d".repeat(200); 5].join("/"));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("e".repeat(30)), "x").unwrap();
    fixture.write("seen", "x");
    assert_eq!(code(fixture.get("pipe").await), "404 NoSuchKey");
    assert_eq!(fixture.keys().await, ["seen"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_swapped_in_gains_nothing() {
    let fixture = fixture();
    let secret = fixture.root.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    fixture.write("dir/key", "public");
    fs::create_dir(fixture.root.path().join("evil")).unwrap();
    symlink(&secret, fixture.root.path().join("evil/key")).unwrap();
    fs::write(fixture.root.path().join("evil/key2"), "secret").unwrap();
    let (inside, root) = (fixture.bucket(), fixture.root.path().to_path_buf());
    let done = AtomicBool::new(false);
    let handle = tokio::runtime::Handle::current();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // The file becomes a link to the secret, then the folder a link to its folder.
                let swap = inside.join("dir/swap");
                symlink(&secret, &swap).unwrap();
                fs::rename(&swap, inside.join("dir/key")).unwrap();
                fs::write(&swap, "public").unwrap();
                fs::rename(&swap, inside.join("dir/key")).unwrap();
                fs::rename(inside.join("dir"), inside.join("old")).unwrap();
                symlink(root.join("evil"), inside.join("dir")).unwrap();
                fs::remove_file(inside.join("dir")).unwrap();
                fs::rename(inside.join("old"), inside.join("dir")).unwrap();
            }
        });
        let reader = scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_secs(2);
            let mut tries = 0_u32;
            while Instant::now() < deadline {
                for name in ["dir/key", "dir/key2"] {
                    tries += 1;
                    let listing = handle.block_on(fixture.origin.fetch(request(name)));
                    let Ok(fetched) = listing else { continue };
                    if let Ok(bytes) = handle.block_on(drain(fetched)) {
                        assert_eq!(bytes, "public");
                    }
                }
            }
            tries
        });
        let tries = reader.join();
        done.store(true, Ordering::Relaxed);
        assert!(tries.unwrap() > 0);
    });
}

// Changing.

#[tokio::test]
async fn a_file_changed_in_mid_read_ends_the_body() {
    type Change = (&'static str, fn(&Path));
    let changes: [Change; 4] = [
        ("overwritten", |path| {
            let mut file = File::options().write(true).open(path).unwrap();
            file.write_all(&vec![b'n'; 3 * MIB]).unwrap();
        }),
        ("touched back", |path| {
            let time = fs::metadata(path).unwrap().modified().unwrap();
            let mut file = File::options().write(true).open(path).unwrap();
            file.write_all(&vec![b'n'; 3 * MIB]).unwrap();
            file.set_modified(time).unwrap();
        }),
        ("cut", |path| File::options().write(true).open(path).unwrap().set_len(10).unwrap()),
        ("replaced", |path| {
            let new = path.with_extension("new");
            fs::write(&new, vec![b'n'; 3 * MIB]).unwrap();
            fs::rename(new, path).unwrap();
        }),
    ];
    for (what, change) in changes {
        let fixture = fixture();
        fixture.write("key", vec![b'o'; 3 * MIB]);
        let mut fetched = fixture.origin.fetch(request("key")).await.unwrap();
        let first = fetched.body.next().await.unwrap().unwrap();
        assert!(first.iter().all(|byte| *byte == b'o') && first.len() < 3 * MIB);
        change(&fixture.bucket().join("key"));
        let second = fetched.body.next().await.unwrap();
        assert!(matches!(second, Err(OriginError::VersionChanged)), "{what}");
        assert!(fetched.body.next().await.is_none(), "{what}");
    }
}

#[tokio::test]
async fn no_two_contents_share_a_tag() {
    let fixture = fixture();
    let path = fixture.bucket().join("key");
    let mut seen: HashMap<String, Bytes> = HashMap::new();
    for round in 0..60_u32 {
        // In place, of one size, and as fast as can be: only the times can tell.
        let mut file =
            File::options().write(true).create(true).truncate(false).open(&path).unwrap();
        file.write_all(format!("{round:08}").as_bytes()).unwrap();
        let fetched = fixture.origin.fetch(request("key")).await.unwrap();
        let tag = fetched.meta.etag.clone().unwrap().to_string();
        let bytes = drain(fetched).await.unwrap();
        assert_eq!(bytes, format!("{round:08}"));
        assert!(seen.insert(tag, bytes).is_none(), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_beside_a_writer_see_whole_objects() {
    let fixture = fixture();
    fixture.put("key", &vec![0; 2 * MIB]).await.unwrap();
    let writer = async {
        for version in 1..30_u8 {
            fixture.put("key", &vec![version; 2 * MIB]).await.unwrap();
        }
    };
    let reader = async {
        let mut whole = 0;
        for _ in 0..60 {
            if let Ok(bytes) = fixture.get("key").await {
                assert_eq!(bytes.len(), 2 * MIB);
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "mixed bytes");
                whole += 1;
            }
        }
        whole
    };
    let ((), whole) = tokio::join!(writer, reader);
    assert!(whole > 0);
    assert_eq!(fixture.get("key").await.unwrap()[0], 29);
}

// Writing.

#[tokio::test]
async fn a_put_is_read_back_with_its_headers() {
    let fixture = fixture();
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("content-type", "text/odd"),
        ("content-encoding", "gzip"),
        ("x-amz-meta-one", "1"),
        ("authorization", "no"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let request = PutRequest { headers, length: Some(10), ..put_request("a/b/key.html") };
    let tag = fixture.origin.put(request, pieces(&[b"01234", b"", b"56789"])).await.unwrap();
    let meta = fixture.head("a/b/key.html").await.unwrap();
    assert_eq!(meta.etag, Some(tag));
    assert_eq!(meta.headers["content-type"], "text/odd");
    assert_eq!(meta.headers["content-encoding"], "gzip");
    assert_eq!(meta.headers["x-amz-meta-one"], "1");
    assert!(!meta.headers.contains_key("authorization"));
    assert_eq!(fixture.get("a/b/key.html").await.unwrap(), "0123456789");
    assert_eq!(fixture.keys().await, ["a/b/key.html"]);
    assert_eq!(fixture.private("meta").len(), 1);

    // Replaced without headers: the old ones do not stay, neither in answers nor on the disk.
    fixture.put("a/b/key.html", b"new").await.unwrap();
    let meta = fixture.head("a/b/key.html").await.unwrap();
    assert_eq!(meta.headers["content-type"], "text/html");
    assert!(!meta.headers.contains_key("x-amz-meta-one"));
    assert!(fixture.private("meta").is_empty() && tmp_is_empty(&fixture));
}

#[tokio::test]
async fn headers_do_not_outlive_a_change_by_somebody_else() {
    let fixture = fixture();
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("text/odd"));
    let request = PutRequest { headers, ..put_request("key") };
    fixture.origin.put(request, pieces(&[b"x"])).await.unwrap();
    let new = fixture.bucket().join("new");
    fs::write(&new, "y").unwrap();
    fs::rename(new, fixture.bucket().join("key")).unwrap();
    let meta = fixture.head("key").await.unwrap();
    assert_eq!(meta.headers["content-type"], "binary/octet-stream");
}

#[tokio::test]
async fn a_put_that_is_not_as_announced_leaves_nothing() {
    let fixture = fixture();
    fixture.put("key", b"old").await.unwrap();
    let short = PutRequest { length: Some(4), ..put_request("key") };
    let wrong = PutRequest { md5: Some([0; 16]), ..put_request("key") };
    let whole = PutRequest { length: Some(3), ..put_request("key") };
    assert_eq!(code(fixture.origin.put(short, pieces(&[b"abc"])).await), "400 IncompleteBody");
    assert_eq!(code(fixture.origin.put(wrong, pieces(&[b"abc"])).await), "400 BadDigest");
    let broken = stream::iter([Ok(Bytes::from_static(b"abc")), Err(io::Error::other("gone"))]);
    assert_eq!(code(fixture.origin.put(whole, broken.boxed()).await), "400 IncompleteBody");
    assert_eq!(fixture.get("key").await.unwrap(), "old");
    assert!(tmp_is_empty(&fixture));
    // The MD5 of "abc" (RFC 1321, A.5).
    let md5 = Some(hex::decode("900150983cd24fb0d6963f7d28e17f72").unwrap().try_into().unwrap());
    let right = PutRequest { md5, ..put_request("key") };
    assert_eq!(code(fixture.origin.put(right, pieces(&[b"abc"])).await), "ok");
}

#[tokio::test]
async fn a_cancelled_put_leaves_nothing() {
    let fixture = fixture();
    let begun = stream::iter([Ok(Bytes::from(vec![1; 2 * MIB]))]).chain(stream::pending());
    let put = fixture.origin.put(put_request("key"), begun.boxed());
    let seen = async {
        let deadline = Instant::now() + Duration::from_secs(10);
        while tmp_is_empty(&fixture) {
            assert!(Instant::now() < deadline, "no temporary file was seen");
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = put => panic!("a body without an end was taken"),
        () = seen => {}
    }
    assert!(tmp_is_empty(&fixture));
    assert_eq!(code(fixture.get("key").await), "404 NoSuchKey");
}

#[tokio::test]
async fn preconditions_hold_or_refuse() {
    let fixture = fixture();
    let matches = |tag: &ETag| Precondition::Matches(tag.clone());
    let other = ETag::new("\"other\"").unwrap();
    let put = |precondition| fixture.put_if("key", b"x", precondition);
    assert_eq!(code(put(matches(&other)).await), "404 NoSuchKey");
    let tag = put(Precondition::Absent).await.unwrap();
    assert_eq!(code(put(Precondition::Absent).await), "412 PreconditionFailed");
    assert_eq!(code(put(matches(&other)).await), "412 PreconditionFailed");
    let new = put(matches(&tag)).await.unwrap();
    assert_ne!(new, tag);
    assert_eq!(code(put(matches(&tag)).await), "412 PreconditionFailed");
    assert!(tmp_is_empty(&fixture));
}

#[tokio::test]
async fn of_many_writers_if_absent_one_wins() {
    let fixture = fixture();
    let bodies: Vec<_> = (0..16_u8).map(|n| [n]).collect();
    let puts = bodies.iter().map(|body| fixture.put_if("a/key", body, Precondition::Absent));
    let done = futures_util::future::join_all(puts).await;
    assert_eq!(done.iter().filter(|put| put.is_ok()).count(), 1);
}

#[tokio::test]
async fn a_key_cannot_be_the_folder_of_another() {
    let fixture = fixture();
    fixture.put("a", b"x").await.unwrap();
    assert_eq!(code(fixture.put("a/b", b"x").await), "400 InvalidArgument");
    fixture.origin.delete(&bucket(), &key("a")).await.unwrap();
    fixture.put("a/b/c", b"x").await.unwrap();
    assert_eq!(code(fixture.put("a", b"x").await), "400 InvalidArgument");
    fixture.origin.delete(&bucket(), &key("a")).await.unwrap();
    assert_eq!(fixture.keys().await, ["a/b/c"]);
    // Folders without an object are in nobody's way.
    fs::remove_file(fixture.bucket().join("a/b/c")).unwrap();
    fixture.put("a", b"x").await.unwrap();
    assert_eq!(fixture.keys().await, ["a"]);
}

#[tokio::test]
async fn a_delete_removes_the_object_and_its_empty_folders() {
    let fixture = fixture();
    let mut headers = HeaderMap::new();
    headers.insert("x-amz-meta-a", HeaderValue::from_static("b"));
    let request = PutRequest { headers, ..put_request("a/b/c") };
    fixture.origin.put(request, pieces(&[b"x"])).await.unwrap();
    fixture.put("a/d", b"x").await.unwrap();
    fixture.origin.delete(&bucket(), &key("a/b/c")).await.unwrap();
    fixture.origin.delete(&bucket(), &key("a/b/c")).await.unwrap();
    assert_eq!(fixture.keys().await, ["a/d"]);
    assert!(!fixture.bucket().join("a/b").exists());
    assert!(fixture.private("meta").is_empty());
    fixture.origin.delete(&bucket(), &key("a/d")).await.unwrap();
    assert!(!fixture.bucket().join("a").exists() && fixture.bucket().exists());
}

// Multipart.

#[tokio::test]
async fn parts_become_one_object() {
    let fixture = fixture();
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("text/odd"));
    let (bucket, key) = (bucket(), key("big/key"));
    let upload = fixture.origin.create_upload(&bucket, &key, &headers).await.unwrap();
    // A restart in between loses nothing.
    let origin = open(fixture.root.path());
    let part = |number, bytes: Vec<u8>| {
        let body = stream::iter([Ok(Bytes::from(bytes))]).boxed();
        origin.upload_part(&bucket, &key, &upload, number, None, None, body)
    };
    let replaced = part(1, vec![0; 5 * MIB]).await.unwrap();
    let third = part(3, b"end".to_vec()).await.unwrap();
    let first = part(1, vec![1; 5 * MIB]).await.unwrap();
    assert_ne!(replaced, first);
    assert_eq!(third.as_str(), "\"7f021a1415b86f2d013b2618fb31ae53\"");
    let parts = origin.list_parts(&bucket, &key, &upload).await.unwrap();
    let seen: Vec<_> = parts.iter().map(|p| (p.number, p.size, p.etag.clone())).collect();
    assert_eq!(seen, [(1, 5 * MIB as u64, first.clone()), (3, 3, third.clone())]);
    assert!(fixture.keys().await.is_empty());

    let complete = |parts: Vec<(u32, ETag)>| {
        let (origin, bucket, key, upload) = (&origin, &bucket, &key, &upload);
        async move { origin.complete_upload(bucket, key, upload, &parts, Precondition::None).await }
    };
    assert_eq!(code(complete(vec![]).await), "400 MalformedXML");
    assert_eq!(code(complete(vec![(1, replaced)]).await), "400 InvalidPart");
    assert_eq!(code(complete(vec![(2, first.clone())]).await), "400 InvalidPart");
    let backwards = vec![(3, third.clone()), (1, first.clone())];
    assert_eq!(code(complete(backwards).await), "400 InvalidPartOrder");
    let tag = complete(vec![(1, first.clone()), (3, third.clone())]).await.unwrap();
    let meta = fixture.head("big/key").await.unwrap();
    assert_eq!((meta.etag, meta.size), (Some(tag), 5 * MIB as u64 + 3));
    assert_eq!(meta.headers["content-type"], "text/odd");
    let bytes = fixture.get("big/key").await.unwrap();
    assert!(bytes[..5 * MIB].iter().all(|b| *b == 1) && bytes.ends_with(b"end"));
    assert_eq!(code(complete(vec![(1, first)]).await), "404 NoSuchUpload");
    assert!(fixture.private("uploads").is_empty() && tmp_is_empty(&fixture));
}

#[tokio::test]
async fn small_parts_are_refused_but_at_the_end() {
    let fixture = fixture();
    let (bucket, key) = (bucket(), key("key"));
    let upload = fixture.origin.create_upload(&bucket, &key, &HeaderMap::new()).await.unwrap();
    let mut parts = Vec::new();
    for number in [1, 2] {
        let body = pieces(&[b"small"]);
        let part = fixture.origin.upload_part(&bucket, &key, &upload, number, Some(5), None, body);
        parts.push((number, part.await.unwrap()));
    }
    let done =
        fixture.origin.complete_upload(&bucket, &key, &upload, &parts, Precondition::None).await;
    assert_eq!(code(done), "400 EntityTooSmall");
    let odd = fixture.origin.upload_part(&bucket, &key, &upload, 0, None, None, pieces(&[b"x"]));
    assert_eq!(code(odd.await), "400 InvalidArgument");
    let short =
        fixture.origin.upload_part(&bucket, &key, &upload, 1, Some(9), None, pieces(&[b"x"]));
    assert_eq!(code(short.await), "400 IncompleteBody");
    let left = fixture.origin.list_parts(&bucket, &key, &upload).await.unwrap();
    assert_eq!(left.iter().map(|part| part.size).collect::<Vec<_>>(), [5, 5]);
}

#[tokio::test]
async fn an_aborted_or_foreign_upload_is_unknown() {
    let fixture = fixture();
    let (bucket, one, other) = (bucket(), key("one"), key("other"));
    let upload = fixture.origin.create_upload(&bucket, &one, &HeaderMap::new()).await.unwrap();
    let list = |key: &ObjectKey, upload: &UploadId| {
        let (origin, bucket) = (&fixture.origin, &bucket);
        let (key, upload) = (key.clone(), upload.clone());
        async move { code(origin.list_parts(bucket, &key, &upload).await) }
    };
    assert_eq!(list(&one, &upload).await, "ok");
    assert_eq!(list(&other, &upload).await, "404 NoSuchUpload");
    assert!(UploadId::new("../../../etc").is_none());
    let unknown = UploadId::new(&"0".repeat(32)).unwrap();
    assert_eq!(list(&one, &unknown).await, "404 NoSuchUpload");
    fixture.origin.abort_upload(&bucket, &one, &upload).await.unwrap();
    assert_eq!(list(&one, &upload).await, "404 NoSuchUpload");
    let again = fixture.origin.abort_upload(&bucket, &one, &upload).await;
    assert_eq!(code(again), "404 NoSuchUpload");
    assert!(fixture.private("uploads").is_empty());
}

// Setting up.

#[tokio::test]
async fn a_root_that_is_no_folder_is_refused() {
    let fixture = fixture();
    fixture.write("file", "x");
    for path in [fixture.bucket().join("none"), fixture.bucket().join("file")] {
        let name = OriginName::new("dir").unwrap();
        let failed = DirectoryOrigin::open(name, &path, &Registry::new()).unwrap_err();
        assert!(failed.to_string().contains("origin dir"), "{failed}");
    }
}

#[tokio::test]
async fn a_stale_temporary_file_is_swept_and_a_new_one_is_not() {
    let fixture = fixture();
    fixture.write(".larder/tmp/old", "x");
    fixture.write(".larder/tmp/new", "x");
    let old = File::options().write(true).open(fixture.bucket().join(".larder/tmp/old")).unwrap();
    let modified = old.metadata().unwrap().modified().unwrap();
    old.set_modified(modified - Duration::from_secs(25 * 3600)).unwrap();
    let _origin = open(fixture.root.path());
    assert_eq!(fixture.private("tmp"), [fixture.bucket().join(".larder/tmp/new")]);
}
