//! The questions that take an object of their own, put and deleted here.

use super::read::Object;
use super::{Answer, Ask, Asker, Reply, told};
use crate::s3::sign::UNSIGNED;
use aws_smithy_types::base64;
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderName, HeaderValue, Method};
use larder_model::{BucketName, ObjectKey, RawBody, Trailer};
use std::sync::{Arc, OnceLock};

const TEXT: &str = "larder origin probe: may be deleted\n";
const CRC32: HeaderName = HeaderName::from_static("x-amz-checksum-crc32");

fn whole() -> RawBody {
    RawBody::Whole(Bytes::from_static(TEXT.as_bytes()))
}

fn unsigned() -> RawBody {
    streamed(None)
}

/// As a client's body with a trailer comes: the checksum is there from the start here.
fn trailed() -> RawBody {
    let value = HeaderValue::try_from(crc32()).unwrap_or(HeaderValue::from_static(""));
    streamed(Some(Trailer { name: CRC32, value: Arc::new(OnceLock::from(value)) }))
}

fn streamed(trailer: Option<Trailer>) -> RawBody {
    let bytes = stream::iter([Ok(Bytes::from_static(TEXT.as_bytes()))]).boxed();
    RawBody::Stream { len: TEXT.len() as u64, sha256: None, trailer, bytes }
}

fn crc32() -> String {
    let crc = checksum(CrcAlgorithm::Crc32IsoHdlc, TEXT.as_bytes());
    base64::encode(u32::try_from(crc).unwrap_or_default().to_be_bytes())
}

impl Asker {
    /// Puts the object in each way that a client may; `None` when it cannot be put at all.
    pub(super) async fn put(&mut self, bucket: &BucketName) -> Option<Object> {
        let name = format!("larder-probe-{:016x}", rand::random::<u64>());
        let key = ObjectKey::new(name).ok()?;
        // From here on there may be something to delete.
        self.survey.left_behind = Some(key.clone());
        let put = Ask { body: &whole, ..Ask::of(Method::PUT, Some(bucket), Some(&key)) };
        let first = self.ask(&put).await;
        let stored = first.as_ref().is_ok_and(Reply::is_good);
        self.note_if("PUT with a signed payload", stored, told(&first));
        if !stored {
            return None;
        }
        let version_id = first.ok().and_then(|reply| version(&reply));
        let reply = self.ask(&Ask { body: &unsigned, ..put.clone() }).await;
        self.note_if(UNSIGNED, reply.as_ref().is_ok_and(Reply::is_good), told(&reply));
        let crc = crc32();
        let headers = [("x-amz-checksum-crc32", crc.as_str())];
        let reply = self.ask(&Ask { headers: &headers, ..put.clone() }).await;
        let taken = reply.as_ref().is_ok_and(Reply::is_good);
        self.note_if("x-amz-checksum-crc32 on PUT", taken, told(&reply));
        let headers = [("x-amz-sdk-checksum-algorithm", "CRC32")];
        let reply = self.ask(&Ask { headers: &headers, body: &trailed, ..put.clone() }).await;
        self.trailer(bucket, &key, reply).await;
        let reply = self.ask(&Ask { headers: &[("if-none-match", "*")], ..put.clone() }).await;
        let answer = match &reply {
            Ok(reply) if reply.status == 412 => Answer::Yes,
            Ok(reply) if reply.is_good() || reply.status == 501 => Answer::No,
            _ => Answer::Unknown,
        };
        self.note("If-None-Match on PUT", answer, told(&reply));
        Some(Object { key, version_id })
    }

    /// An endpoint that does not know the framing may store it as if it were content.
    async fn trailer(
        &mut self,
        bucket: &BucketName,
        key: &ObjectKey,
        reply: Result<Reply, String>,
    ) {
        let subject = "checksum as a trailer";
        if !reply.as_ref().is_ok_and(Reply::is_good) {
            return self.note(subject, Answer::No, told(&reply));
        }
        let stored = self.ask(&Ask::of(Method::GET, Some(bucket), Some(key))).await;
        match &stored {
            Ok(stored) if stored.body == TEXT.as_bytes() => {
                self.note(subject, Answer::Yes, told(&reply));
            }
            Ok(stored) if stored.is_good() => {
                self.note(subject, Answer::No, "taken, but stored with its framing");
            }
            stored => self.note(subject, Answer::Unknown, told(stored)),
        }
    }

    /// Deletes the object, each of its versions where it has some.
    pub(super) async fn clear(&mut self, bucket: &BucketName) {
        let Some(key) = self.survey.left_behind.clone() else { return };
        for version_id in self.versions(bucket, &key).await {
            let query = [("versionId", version_id.as_str())];
            let ask = Ask { query: &query, ..Ask::of(Method::DELETE, Some(bucket), Some(&key)) };
            // Whether it is gone is asked below.
            let _told_below = self.ask(&ask).await;
        }
        let gone = self.ask(&Ask::of(Method::HEAD, Some(bucket), Some(&key))).await;
        let gone = match gone {
            Ok(reply) if reply.status == 404 => Ok(reply),
            _ => self.ask(&Ask::of(Method::DELETE, Some(bucket), Some(&key))).await,
        };
        let done = gone.as_ref().is_ok_and(|reply| reply.is_good() || reply.status == 404);
        if done {
            self.survey.left_behind = None;
        }
        self.note_if("probe object deleted", done, told(&gone));
    }

    /// The versions of the object that the bucket still has.
    async fn versions(&mut self, bucket: &BucketName, key: &ObjectKey) -> Vec<String> {
        let query = [("versions", ""), ("prefix", key.as_str())];
        let ask = Ask { query: &query, ..Ask::of(Method::GET, Some(bucket), None) };
        let Ok(reply) = self.ask(&ask).await else { return Vec::new() };
        let Ok(text) = std::str::from_utf8(&reply.body) else { return Vec::new() };
        let ids = text.split("<VersionId>").skip(1).filter_map(|rest| rest.split('<').next());
        let known = ids.filter(|id| !id.is_empty() && *id != "null").map(str::to_owned);
        if reply.is_good() { known.collect() } else { Vec::new() }
    }
}

fn version(reply: &Reply) -> Option<String> {
    reply.header("x-amz-version-id").map(str::to_owned)
}
