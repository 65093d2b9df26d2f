//! Files that change while they are read, and tags that tell.

use crate::fixture::{MIB, drain, fixture, request};
use bytes::Bytes;
use futures_util::StreamExt as _;
use larder_model::{Origin as _, OriginError};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

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
