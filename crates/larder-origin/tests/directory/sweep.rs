//! Opening a folder, and what is swept from it.

use crate::fixture::{MIB, bucket, code, fixture, key, open, pieces};
use http::HeaderMap;
use larder_model::OriginName;
use larder_origin::DirectoryOrigin;
use prometheus::Registry;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Sets a file's or a folder's times back by so many days.
fn age(path: &Path, days: u32) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    File::open(path).unwrap().set_modified(modified - DAY * days).unwrap();
}

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
async fn a_stale_temporary_file_is_swept_and_a_new_or_a_locked_one_is_not() {
    let fixture = fixture();
    let tmp = fixture.bucket().join(".larder/tmp");
    for (name, days) in [("old", 8), ("new", 6), ("locked", 8)] {
        fixture.write(&format!(".larder/tmp/{name}"), "x");
        age(&tmp.join(name), days);
    }
    let locked = File::open(tmp.join("locked")).unwrap();
    locked.lock().unwrap();
    let _origin = open(fixture.root.path());
    let mut left = fixture.private("tmp");
    left.sort();
    assert_eq!(left, [tmp.join("locked"), tmp.join("new")]);
    drop(locked);
    let _origin = open(fixture.root.path());
    assert_eq!(fixture.private("tmp"), [tmp.join("new")]);
}

#[tokio::test]
async fn an_upload_is_swept_when_nobody_went_on_with_it_for_a_week() {
    let fixture = fixture();
    let (bucket, key) = (bucket(), key("key"));
    let folder = fixture.bucket().join(".larder/uploads");
    let none = HeaderMap::new();
    let begin = || fixture.origin.create_upload(&bucket, &key, &none);
    let [old, resumed, held] =
        [begin().await.unwrap(), begin().await.unwrap(), begin().await.unwrap()];
    for id in [&old, &resumed, &held] {
        let part =
            fixture.origin.upload_part(&bucket, &key, id, 1, None, None, pieces(&[b"part"])).await;
        assert_eq!(code(part), "ok");
        for entry in fs::read_dir(folder.join(id.as_str())).unwrap() {
            age(&entry.unwrap().path(), 8);
        }
        age(&folder.join(id.as_str()), 8);
    }
    // What a removal that was cut short left: no record, and a part.
    fs::create_dir(folder.join("half")).unwrap();
    fs::write(folder.join("half/part.00001.x"), "x").unwrap();
    age(&folder.join("half"), 8);
    let again = fixture.origin.upload_part(&bucket, &key, &resumed, 2, None, None, pieces(&[b"x"]));
    assert_eq!(code(again.await), "ok");
    let record = File::open(folder.join(held.as_str()).join("upload.json")).unwrap();
    record.lock().unwrap();

    let origin = open(fixture.root.path());
    assert_eq!(code(origin.list_parts(&bucket, &key, &old).await), "404 NoSuchUpload");
    assert_eq!(origin.list_parts(&bucket, &key, &resumed).await.unwrap().len(), 2);
    assert_eq!(origin.list_parts(&bucket, &key, &held).await.unwrap().len(), 1);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}

#[tokio::test]
async fn nothing_is_swept_through_a_link() {
    let fixture = fixture();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("mine"), vec![0; MIB]).unwrap();
    age(&elsewhere.path().join("mine"), 30);
    fs::create_dir(fixture.bucket().join(".larder")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), fixture.bucket().join(".larder/tmp")).unwrap();
    let _origin = open(fixture.root.path());
    assert!(elsewhere.path().join("mine").exists());
}

#[tokio::test(start_paused = true)]
async fn sweeping_goes_on_while_the_origin_is_there() {
    let fixture = fixture();
    fixture.write(".larder/tmp/left", "x");
    let left = fixture.bucket().join(".larder/tmp/left");
    age(&left, 8);
    assert!(left.exists(), "the origin was open before the file was left");
    tokio::time::sleep(DAY + Duration::from_secs(1)).await;
    let deadline = Instant::now() + Duration::from_secs(10);
    while left.exists() {
        assert!(Instant::now() < deadline, "not swept after a day");
        tokio::task::yield_now().await;
    }
}
