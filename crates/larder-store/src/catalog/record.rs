//! The stored form of a record.
//!
//! Key: dataset, origin, bucket and version id, each behind its length, then the object's key, so
//! that no two names run into the same bytes. Value: a version byte, the fields, and a CRC-32C of
//! key and value. Little endian.

use http::{HeaderMap, HeaderName, HeaderValue};
use larder_model::{
    BucketName, DatasetName, ETag, ObjectKey, ObjectMeta, ObjectName, ObjectRecord, OriginName,
    Timestamp, VersionId,
};
use std::sync::Arc;

const VERSION: u8 = 1;

/// The key of (dataset, name).
pub(super) fn key(dataset: &DatasetName, name: &ObjectName) -> Vec<u8> {
    let mut out = Writer(Vec::with_capacity(64 + name.key.as_str().len()));
    out.text(dataset.as_str());
    out.text(name.origin.as_str());
    out.text(name.bucket.as_str());
    out.option(name.version_id.as_ref().map(VersionId::as_str));
    out.0.extend_from_slice(name.key.as_str().as_bytes());
    out.0
}

/// The value: everything that the key does not say.
pub(super) fn encode(record: &ObjectRecord) -> Vec<u8> {
    let meta = &record.meta;
    let mut out = Writer(Vec::with_capacity(256 + 8 * record.resident.len()));
    out.0.push(VERSION);
    out.u64(meta.size);
    out.option(meta.etag.as_ref().map(ETag::as_str));
    out.option(meta.version_id.as_ref().map(VersionId::as_str));
    out.u32(record.block_bytes);
    out.u64(record.asked_at.0);
    out.u64(record.used_at.0);
    out.u32(meta.headers.len() as u32);
    for (name, value) in &meta.headers {
        out.text(name.as_str());
        out.bytes(value.as_bytes());
    }
    out.u32(record.resident.len() as u32);
    for word in &record.resident {
        out.u64(*word);
    }
    let crc = checksum(&key(&record.dataset, &record.name), &out.0);
    out.u32(crc);
    out.0
}

/// The record, or `None` when it is damaged or of a version that this program does not know.
pub(super) fn decode(key: &[u8], value: &[u8]) -> Option<ObjectRecord> {
    let (fields, crc) = value.split_last_chunk::<4>()?;
    if checksum(key, fields) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut name = Reader(key);
    let dataset = DatasetName::new(name.text()?).ok()?;
    let origin = OriginName::new(name.text()?).ok()?;
    let bucket = BucketName::new(name.text()?).ok()?;
    let version_id = version(name.option()?)?;
    let object = ObjectKey::new(std::str::from_utf8(name.0).ok()?).ok()?;
    let name = ObjectName { origin, bucket, key: object, version_id };

    let mut fields = Reader(fields);
    if fields.take::<1>()? != [VERSION] {
        return None;
    }
    let size = fields.u64()?;
    let etag = match fields.option()? {
        Some(tag) => Some(ETag::new(tag)?),
        None => None,
    };
    let version_id = version(fields.option()?)?;
    let block_bytes = fields.u32()?;
    let asked_at = Timestamp(fields.u64()?);
    let used_at = Timestamp(fields.u64()?);
    let headers = headers(&mut fields)?;
    let words = fields.u32()?;
    let resident = (0..words).map(|_| fields.u64()).collect::<Option<_>>()?;
    if !fields.0.is_empty() {
        return None;
    }
    let meta = Arc::new(ObjectMeta { size, etag, version_id, headers });
    Some(ObjectRecord { dataset, name, meta, block_bytes, asked_at, used_at, resident })
}

fn headers(fields: &mut Reader<'_>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for _ in 0..fields.u32()? {
        let name = HeaderName::from_bytes(fields.text()?.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(fields.bytes()?).ok()?);
    }
    Some(headers)
}

/// Outer `None`: not a version id.
fn version(id: Option<&str>) -> Option<Option<VersionId>> {
    id.map(VersionId::new).transpose().ok()
}

fn checksum(key: &[u8], fields: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), fields)
}

struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, value: &[u8]) {
        self.u32(value.len() as u32);
        self.0.extend_from_slice(value);
    }

    fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    fn option(&mut self, value: Option<&str>) {
        self.0.push(u8::from(value.is_some()));
        if let Some(value) = value {
            self.text(value);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// Outer `None`: damaged.
    fn option(&mut self) -> Option<Option<&'a str>> {
        match self.take::<1>()? {
            [0] => Some(None),
            [1] => Some(Some(self.text()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{VERSION, checksum, decode, encode, key};
    use http::HeaderMap;
    use larder_model::{
        BucketName, DatasetName, ObjectKey, ObjectMeta, ObjectName, ObjectRecord, OriginName,
        Timestamp, VersionId,
    };
    use std::sync::Arc;

    fn record(object: &str, version_id: Option<&str>) -> ObjectRecord {
        ObjectRecord {
            dataset: DatasetName::new("d").unwrap(),
            name: ObjectName {
                origin: OriginName::new("o").unwrap(),
                bucket: BucketName::new("bucket").unwrap(),
                key: ObjectKey::new(object).unwrap(),
                version_id: version_id.map(|id| VersionId::new(id).unwrap()),
            },
            meta: Arc::new(ObjectMeta {
                size: 5,
                etag: None,
                version_id: None,
                headers: HeaderMap::new(),
            }),
            block_bytes: 1 << 20,
            asked_at: Timestamp(1),
            used_at: Timestamp(2),
            resident: vec![1],
        }
    }

    #[test]
    fn a_version_id_does_not_run_into_the_key() {
        let keys = [("abc", None), ("bc", Some("a")), ("c", Some("ab")), ("abc", Some("abc"))]
            .map(|(object, id)| record(object, id))
            .map(|record| key(&record.dataset, &record.name));
        for (i, one) in keys.iter().enumerate() {
            assert!(keys[i + 1..].iter().all(|other| other != one));
        }
    }

    #[test]
    fn a_record_of_a_later_version_is_skipped() {
        let record = record("k", None);
        let key = key(&record.dataset, &record.name);
        let mut value = encode(&record);
        assert!(decode(&key, &value).is_some());
        value[0] = VERSION + 1;
        let end = value.len() - 4;
        let crc = checksum(&key, &value[..end]);
        value[end..].copy_from_slice(&crc.to_le_bytes());
        assert!(decode(&key, &value).is_none());
    }

    #[test]
    fn a_record_under_another_key_is_skipped() {
        let (one, other) = (record("one", None), record("other", None));
        assert!(decode(&key(&other.dataset, &other.name), &encode(&one)).is_none());
    }

    #[test]
    fn any_damage_is_noticed() {
        let record = record("k", None);
        let key = key(&record.dataset, &record.name);
        let value = encode(&record);
        for at in 0..value.len() {
            let mut damaged = value.clone();
            damaged[at] ^= 1;
            assert!(decode(&key, &damaged).is_none(), "byte {at}");
            assert!(decode(&key, &value[..at]).is_none(), "cut at {at}");
        }
    }
}
