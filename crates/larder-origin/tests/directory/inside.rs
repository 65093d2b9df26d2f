//! No key, and no link, leads out of its bucket.

use crate::fixture::{bucket, code, drain, fixture, key, request};
use larder_model::Origin as _;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
