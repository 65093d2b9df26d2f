//! A folder with one bucket, and an origin over it.

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::HeaderMap;
use larder_model::{
    BucketName, ETag, FetchRequest, Fetched, HeadRequest, ListDialect, ListRequest, ObjectKey,
    ObjectMeta, ObjectName, Origin as _, OriginError, OriginName,
};
use larder_origin::{DirectoryOrigin, Precondition, PutRequest};
use prometheus::Registry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(crate) const MIB: usize = 1024 * 1024;

/// A root with the bucket `bucket`.
pub(crate) struct Fixture {
    pub(crate) root: TempDir,
    pub(crate) origin: DirectoryOrigin,
}

pub(crate) fn fixture() -> Fixture {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("bucket")).unwrap();
    let origin = open(root.path());
    Fixture { root, origin }
}

pub(crate) fn open(root: &Path) -> DirectoryOrigin {
    DirectoryOrigin::open(OriginName::new("dir").unwrap(), root, &Registry::new()).unwrap()
}

pub(crate) fn bucket() -> BucketName {
    BucketName::new("bucket").unwrap()
}

pub(crate) fn key(key: &str) -> ObjectKey {
    ObjectKey::new(key).unwrap()
}

pub(crate) fn request(name: &str) -> FetchRequest {
    let name = ObjectName {
        origin: OriginName::new("dir").unwrap(),
        bucket: bucket(),
        key: key(name),
        version_id: None,
    };
    FetchRequest { name, range: None, if_match: None, part_number: None, checksums: false }
}

pub(crate) async fn drain(mut fetched: Fetched) -> Result<Bytes, OriginError> {
    let mut bytes = Vec::new();
    while let Some(piece) = fetched.body.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(bytes.into())
}

pub(crate) fn pieces(pieces: &[&[u8]]) -> stream::BoxStream<'static, io::Result<Bytes>> {
    let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    stream::iter(pieces).boxed()
}

impl Fixture {
    pub(crate) fn bucket(&self) -> PathBuf {
        self.root.path().join("bucket")
    }

    pub(crate) fn write(&self, key: &str, bytes: impl AsRef<[u8]>) {
        let path = self.bucket().join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Bytes, OriginError> {
        drain(self.origin.fetch(request(key)).await?).await
    }

    pub(crate) async fn head(&self, key: &str) -> Result<ObjectMeta, OriginError> {
        let name = request(key).name;
        self.origin.head(HeadRequest { name, part_number: None, checksums: false }).await
    }

    pub(crate) async fn put(&self, name: &str, bytes: &[u8]) -> Result<ETag, OriginError> {
        self.put_if(name, bytes, Precondition::None).await
    }

    pub(crate) async fn put_if(
        &self,
        name: &str,
        bytes: &[u8],
        precondition: Precondition,
    ) -> Result<ETag, OriginError> {
        let request = PutRequest { precondition, ..put_request(name) };
        self.origin.put(request, pieces(&[bytes])).await
    }

    pub(crate) async fn keys(&self) -> Vec<String> {
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
    pub(crate) fn private(&self, folder: &str) -> Vec<PathBuf> {
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

pub(crate) fn put_request(name: &str) -> PutRequest {
    PutRequest {
        bucket: bucket(),
        key: key(name),
        headers: HeaderMap::new(),
        length: None,
        md5: None,
        precondition: Precondition::None,
    }
}

pub(crate) fn code<T>(result: Result<T, OriginError>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(OriginError::NotFound(reply) | OriginError::Refused(reply)) => {
            format!("{} {}", reply.status, reply.code)
        }
        Err(other) => format!("{other:?}"),
    }
}

pub(crate) fn tmp_is_empty(fixture: &Fixture) -> bool {
    fixture.private("tmp").is_empty()
}
