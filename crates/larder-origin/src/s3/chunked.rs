//! aws-chunked, unsigned, with a checksum as its trailer (S3 API, "Signature Calculations: Including
//! Trailing Headers"): the framing in which S3 takes a checksum that is known only at the end.

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::HeaderName;
use larder_model::{BodyBroken, Trailer};
use std::collections::VecDeque;

/// Data bytes of a chunk. S3 wants at least 8 KiB in all but the last; some servers hold a whole one
/// in memory.
const CHUNK_BYTES: u64 = 128 * 1024;

type Pieces = BoxStream<'static, Result<Bytes, BodyBroken>>;

/// The lengths of an encoded body, which must be told before its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Framing {
    /// Data bytes.
    pub(super) len: u64,
    /// The trailing line: name, colon and value.
    trailer_len: u64,
}

impl Framing {
    /// `None` where the length of the checksum is not known, so that it cannot be announced.
    pub(super) fn of(len: u64, trailer: &HeaderName) -> Option<Self> {
        let digest_bytes: u64 = match trailer.as_str().strip_prefix("x-amz-checksum-")? {
            "crc32" | "crc32c" => 4,
            "crc64nvme" | "xxhash64" | "xxhash3" => 8,
            "md5" | "xxhash128" => 16,
            "sha1" => 20,
            "sha256" => 32,
            "sha512" => 64,
            _ => return None,
        };
        // Base64 with padding.
        let value_len = digest_bytes.div_ceil(3) * 4;
        Some(Self { len, trailer_len: trailer.as_str().len() as u64 + 1 + value_len })
    }

    /// Bytes on the wire.
    pub(super) fn encoded_len(self) -> u64 {
        let (full, rest) = (self.len / CHUNK_BYTES, self.len % CHUNK_BYTES);
        let chunk = |data: u64| head(data).len() as u64 + data + 2;
        let chunks = full * chunk(CHUNK_BYTES) + if rest > 0 { chunk(rest) } else { 0 };
        chunks + head(0).len() as u64 + self.trailer_len + 4
    }
}

fn head(data: u64) -> String {
    format!("{data:x}\r\n")
}

struct Encoder {
    bytes: Pieces,
    framing: Framing,
    trailer: Trailer,
    /// Data bytes that no chunk has announced yet.
    unannounced: u64,
    /// Data bytes that the current chunk still lacks.
    lacking: u64,
    ready: VecDeque<Bytes>,
    over: bool,
}

/// Encodes a stream that yields exactly `framing.len` bytes, or an error.
pub(super) fn encode(bytes: Pieces, framing: Framing, trailer: Trailer) -> Pieces {
    let encoder = Encoder {
        bytes,
        framing,
        trailer,
        unannounced: framing.len,
        lacking: 0,
        ready: VecDeque::new(),
        over: false,
    };
    stream::unfold(encoder, |mut encoder| async move {
        let item = encoder.step().await?;
        Some((item, encoder))
    })
    .boxed()
}

impl Encoder {
    async fn step(&mut self) -> Option<Result<Bytes, BodyBroken>> {
        if let Some(piece) = self.ready.pop_front() {
            return Some(Ok(piece));
        }
        if self.over {
            return None;
        }
        match self.bytes.next().await {
            Some(Ok(piece)) => self.frame(piece),
            Some(Err(broken)) => {
                self.over = true;
                return Some(Err(broken));
            }
            None => {
                self.over = true;
                if let Err(broken) = self.end() {
                    return Some(Err(broken));
                }
            }
        }
        self.ready.pop_front().map(Ok)
    }

    fn frame(&mut self, mut piece: Bytes) {
        while !piece.is_empty() {
            if self.lacking == 0 {
                self.lacking = self.unannounced.min(CHUNK_BYTES);
                self.unannounced -= self.lacking;
                self.ready.push_back(Bytes::from(head(self.lacking)));
            }
            let take = usize::try_from(self.lacking).unwrap_or(usize::MAX).min(piece.len());
            self.ready.push_back(piece.split_to(take));
            self.lacking -= take as u64;
            if self.lacking == 0 {
                self.ready.push_back(Bytes::from_static(b"\r\n"));
            }
        }
    }

    /// The last chunk and the trailer, whose value must have the length that was announced.
    fn end(&mut self) -> Result<(), BodyBroken> {
        let value = self.trailer.value.get().ok_or(BodyBroken)?;
        let mut line = format!("{}:", self.trailer.name).into_bytes();
        line.extend_from_slice(value.as_bytes());
        if line.len() as u64 != self.framing.trailer_len {
            return Err(BodyBroken);
        }
        let last = [head(0).as_bytes(), &line, b"\r\n\r\n"].concat();
        self.ready.push_back(Bytes::from(last));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Framing, encode};
    use bytes::Bytes;
    use futures_util::stream::{self, StreamExt as _};
    use http::{HeaderName, HeaderValue};
    use larder_model::{BodyBroken, Trailer};
    use std::sync::{Arc, OnceLock};

    async fn encoded(
        pieces: Vec<Bytes>,
        value: Option<&'static str>,
    ) -> Result<String, BodyBroken> {
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        let name = HeaderName::from_static("x-amz-checksum-crc32");
        let framing = Framing::of(len, &name).unwrap();
        let trailer = Trailer { name, value: Arc::new(OnceLock::new()) };
        if let Some(value) = value {
            trailer.value.set(HeaderValue::from_static(value)).unwrap();
        }
        let mut all = Vec::new();
        let mut stream = encode(stream::iter(pieces.into_iter().map(Ok)).boxed(), framing, trailer);
        while let Some(piece) = stream.next().await {
            all.extend_from_slice(&piece?);
        }
        assert_eq!(all.len() as u64, framing.encoded_len());
        Ok(String::from_utf8(all).unwrap())
    }

    #[tokio::test]
    async fn a_body_has_chunks_and_a_trailer() {
        let end = "0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        assert_eq!(encoded(vec![], Some("AAAAAA==")).await.unwrap(), end);
        let pieces = vec![Bytes::from("ab"), Bytes::from("c")];
        let got = encoded(pieces, Some("AAAAAA==")).await.unwrap();
        assert_eq!(got, format!("3\r\nabc\r\n{end}"));
        let big = "x".repeat(300_000);
        let (one, rest) = big.split_at(200_000);
        let pieces = vec![one.to_owned().into(), rest.to_owned().into()];
        let full = "x".repeat(131_072);
        let got = encoded(pieces, Some("AAAAAA==")).await.unwrap();
        let tail = "x".repeat(300_000 - 262_144);
        assert!(got == format!("20000\r\n{full}\r\n20000\r\n{full}\r\n93e0\r\n{tail}\r\n{end}"));
    }

    #[tokio::test]
    async fn a_trailer_that_is_missing_or_of_another_length_breaks_the_body() {
        for value in [None, Some("AAAA"), Some("AAAAAAAAAAA=")] {
            assert_eq!(encoded(vec![Bytes::from("ab")], value).await, Err(BodyBroken), "{value:?}");
        }
    }

    #[test]
    fn only_checksums_of_known_length_can_be_announced() {
        let known = |name| Framing::of(1, &HeaderName::from_static(name)).is_some();
        assert!(known("x-amz-checksum-crc64nvme") && known("x-amz-checksum-sha256"));
        assert!(!known("x-amz-checksum-of-tomorrow") && !known("x-amz-meta-a"));
    }
}
