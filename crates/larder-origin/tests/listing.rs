//! The directory origin's LIST against a model: sorted keys, rolled up and cut into pages.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics, also in its helpers")]

use larder_model::{
    BucketName, ListDialect, ListPage, ListRequest, ObjectKey, Origin as _, OriginName,
};
use larder_origin::DirectoryOrigin;
use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
use proptest::test_runner::Config;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Parts whose order differs with and without a `/` behind them.
const PARTS: [&str; 12] = ["a", "b", "a-b", "a0", "ab", "a.", "A", "é", "é-", "~", " ", ".larder"];

fn key() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&PARTS[..]), 1..4).prop_map(|parts| parts.join("/"))
}

/// Something that is often the beginning of a key, and sometimes odd.
fn bound() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just(String::new()),
        6 => (key(), any::<prop::sample::Index>()).prop_map(|(key, cut)| {
            let cuts: Vec<usize> = key.char_indices().map(|(at, _)| at).chain([key.len()]).collect();
            key[..cuts[cut.index(cuts.len())]].to_owned()
        }),
        2 => key().prop_map(|key| key + "/"),
        1 => prop::sample::select(vec!["/", "//", "../", "a//", "./", "\u{10ffff}", "a\0"])
            .prop_map(str::to_owned),
    ]
}

fn delimiter() -> impl Strategy<Value = Option<String>> {
    prop::sample::select(vec![
        None,
        Some("/"),
        Some("-"),
        Some("a"),
        Some("/a"),
        Some("b/"),
        Some("é"),
        Some(""),
    ])
    .prop_map(|delimiter| delimiter.map(str::to_owned))
}

/// Writes what a folder can hold of `keys`; returns that.
fn plant(bucket: &Path, keys: &[String]) -> BTreeSet<String> {
    let mut planted = BTreeSet::new();
    for key in keys {
        let path = bucket.join(key);
        if fs::create_dir_all(path.parent().unwrap()).is_err() || path.is_dir() {
            continue;
        }
        fs::write(&path, key).unwrap();
        if !key.starts_with(".larder/") && key != ".larder" {
            planted.insert(key.clone());
        }
    }
    planted
}

/// The names of the items that a listing without pages has.
fn model(
    keys: &BTreeSet<String>,
    prefix: &str,
    delimiter: Option<&str>,
    after: &str,
) -> Vec<String> {
    let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty());
    let roll = |key: &String| {
        let rest = key.strip_prefix(prefix)?;
        Some(match delimiter.and_then(|d| Some(rest.find(d)? + d.len())) {
            Some(end) => key[..prefix.len() + end].to_owned(),
            None => key.clone(),
        })
    };
    let items: BTreeSet<String> = keys.iter().filter_map(roll).collect();
    items.into_iter().filter(|item| item.as_str() > after).collect()
}

fn names(page: &ListPage) -> Vec<String> {
    let keys = page.objects.iter().map(|object| object.key.as_str().to_owned());
    let mut names: Vec<_> = keys.chain(page.common_prefixes.iter().cloned()).collect();
    names.sort();
    names
}

/// All pages of a listing.
async fn walk(origin: &DirectoryOrigin, mut request: ListRequest) -> Vec<ListPage> {
    let mut pages = Vec::new();
    loop {
        let page = origin.list(request.clone()).await.unwrap();
        let last = names(&page).last().cloned();
        request.token = page.next_token.clone();
        request.marker = page.next_marker.clone().or(last);
        let more = page.truncated;
        pages.push(page);
        if !more {
            return pages;
        }
    }
}

fn request(dialect: ListDialect) -> ListRequest {
    ListRequest {
        bucket: BucketName::new("bucket").unwrap(),
        dialect,
        prefix: String::new(),
        delimiter: None,
        max_keys: 1000,
        marker: None,
        token: None,
        start_after: None,
        fetch_owner: false,
    }
}

fn origin(root: &Path) -> DirectoryOrigin {
    let registry = prometheus::Registry::new();
    DirectoryOrigin::open(OriginName::new("dir").unwrap(), root, &registry).unwrap()
}

proptest! {
    #![proptest_config(Config { cases: 300, ..Config::default() })]

    #[test]
    fn every_page_is_the_models(
        keys in prop::collection::vec(key(), 0..30),
        empty in prop::collection::vec(key(), 0..4),
        listings in prop::collection::vec(
            (bound(), delimiter(), bound(), 1_u32..6, any::<bool>()), 1..8),
    ) {
        let root = tempfile::tempdir().unwrap();
        let bucket = root.path().join("bucket");
        fs::create_dir(&bucket).unwrap();
        let planted = plant(&bucket, &keys);
        for folder in &empty {
            // Where a file is in the way, there is one empty folder less.
            let _ = fs::create_dir_all(bucket.join(folder));
        }
        let origin = origin(root.path());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (prefix, delimiter, after, max_keys, v2) in listings {
            let expected = model(&planted, &prefix, delimiter.as_deref(), &after);
            let dialect = if v2 { ListDialect::V2 } else { ListDialect::V1 };
            let start = (!after.is_empty()).then_some(after);
            let request = ListRequest {
                prefix,
                delimiter,
                max_keys,
                marker: start.clone(),
                start_after: start,
                ..request(dialect)
            };
            let pages = runtime.block_on(walk(&origin, request));
            let got: Vec<Vec<String>> = pages.iter().map(names).collect();
            let chunks: Vec<Vec<String>> =
                expected.chunks(max_keys as usize).map(<[String]>::to_vec).collect();
            prop_assert_eq!(got.concat(), expected);
            // Full pages but the last, and no empty page at the end.
            prop_assert_eq!(got.len(), chunks.len().max(1));
        }
    }
}

#[tokio::test]
async fn a_listed_object_is_what_a_head_tells() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("bucket")).unwrap();
    fs::write(root.path().join("bucket/key"), "12345").unwrap();
    let origin = origin(root.path());
    let page = origin.list(request(ListDialect::V2)).await.unwrap();
    let listed = &page.objects[0];
    let head = larder_model::HeadRequest {
        name: larder_model::ObjectName {
            origin: OriginName::new("dir").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new("key").unwrap(),
            version_id: None,
        },
        part_number: None,
        checksums: false,
    };
    let meta = origin.head(head).await.unwrap();
    assert_eq!((listed.size, &listed.etag), (5, &meta.etag));
    let seconds = i64::try_from(listed.last_modified.unwrap().0 / 1000).unwrap();
    assert_eq!(meta.last_modified(), Some(seconds));
}

#[tokio::test]
async fn no_keys_are_asked_for_and_none_are_told() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("bucket")).unwrap();
    fs::write(root.path().join("bucket/key"), "").unwrap();
    let none = ListRequest { max_keys: 0, ..request(ListDialect::V2) };
    assert_eq!(origin(root.path()).list(none).await.unwrap(), ListPage::default());
}

#[tokio::test]
async fn a_token_of_somebody_else_is_refused() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("bucket")).unwrap();
    let odd = ListRequest { token: Some("a/b".into()), ..request(ListDialect::V2) };
    let failed = origin(root.path()).list(odd).await.unwrap_err();
    assert!(matches!(failed, larder_model::OriginError::Refused(reply) if reply.status == 400));
}

#[tokio::test]
async fn a_large_folder_is_seen_as_it_is_between_pages() {
    let root = tempfile::tempdir().unwrap();
    let bucket = root.path().join("bucket");
    fs::create_dir(&bucket).unwrap();
    for number in 0..1500 {
        fs::write(bucket.join(format!("{number:04}")), "").unwrap();
    }
    let origin = origin(root.path());
    // Old enough for the folder to be kept: its own clock must have ticked on.
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_millis(30) {
        tokio::task::yield_now().await;
    }
    let page = |after: &str| ListRequest {
        start_after: Some(after.to_owned()),
        max_keys: 3,
        ..request(ListDialect::V2)
    };
    let first = origin.list(page("0998")).await.unwrap();
    assert_eq!(names(&first), ["0999", "1000", "1001"]);
    fs::remove_file(bucket.join("1002")).unwrap();
    fs::write(bucket.join("1001-new"), "").unwrap();
    let second = origin.list(page("1001")).await.unwrap();
    assert_eq!(names(&second), ["1001-new", "1003", "1004"]);
}
