//! aws-chunked, read as it comes ("Signature Calculations for the Authorization Header: Transferring
//! Payload in Multiple Chunks" in the S3 API Reference).
//!
//! A state machine over bytes without any input or output of its own. It keeps no payload: what it is
//! fed it hands out in slices, however large a chunk is. A chunk's signature is compared when the chunk
//! has ended, so what came out before is to be held as unverified until [`Chunked::finish`].

use super::decoder::Broken;
use bytes::{Buf, Bytes};
use http::HeaderName;
use ring::{digest, hmac};

/// The longest line that may begin a chunk: 16 digits, the extension's name and 64 digits are 98.
const MAX_SIZE_LINE_BYTES: usize = 256;

/// The most bytes of everything behind the last chunk.
const MAX_TRAILER_BYTES: usize = 4096;

/// The trailer that signs the others.
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// SHA-256 of nothing.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The chain of signatures through the chunks of a body; it begins with the request's own.
pub(crate) struct Seal {
    key: hmac::Key,
    /// `YYYYMMDDTHHMMSSZ\nYYYYMMDD/REGION/s3/aws4_request`
    scope: String,
    /// The last signature that was right, in hexadecimal digits.
    last: String,
}

impl Seal {
    /// `time` and `scope` are those of the request's own signature, `seed`, in hexadecimal digits.
    pub(crate) fn new(key: hmac::Key, time: &str, scope: &str, seed: &str) -> Self {
        Self { key, scope: format!("{time}\n{scope}"), last: seed.to_owned() }
    }

    fn check(&mut self, text: &str, signature: &str) -> Result<(), Broken> {
        let mut bytes = [0; 32];
        let lower = !signature.bytes().any(|b| b.is_ascii_uppercase());
        hex::decode_to_slice(signature, &mut bytes).map_err(|_| Broken::Signature)?;
        if !lower {
            return Err(Broken::Signature);
        }
        hmac::verify(&self.key, text.as_bytes(), &bytes).map_err(|_| Broken::Signature)?;
        self.last.clear();
        self.last.push_str(signature);
        Ok(())
    }

    fn check_chunk(&mut self, hash: &digest::Digest, signature: &str) -> Result<(), Broken> {
        let (scope, last, hash) = (&self.scope, &self.last, hex::encode(hash));
        let text = format!("AWS4-HMAC-SHA256-PAYLOAD\n{scope}\n{last}\n{EMPTY_SHA256}\n{hash}");
        self.check(&text, signature)
    }

    fn check_trailer(&mut self, trailer: &str, signature: &str) -> Result<(), Broken> {
        let hash = hex::encode(digest::digest(&digest::SHA256, trailer.as_bytes()));
        let text = format!("AWS4-HMAC-SHA256-TRAILER\n{}\n{}\n{hash}", self.scope, self.last);
        self.check(&text, signature)
    }
}

/// A chunk's signature, as it was announced, and the hash of what has come of the chunk.
struct Signed {
    signature: String,
    hash: digest::Context,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// In the line that tells a chunk's size.
    Size,
    /// In a chunk, this many bytes before its end.
    Payload(u64),
    /// Behind a chunk's bytes, before this many bytes of CR LF.
    Crlf(u8),
    /// Behind the last chunk.
    Trailer,
}

/// The reader of one body.
pub(crate) struct Chunked {
    state: State,
    /// What has come of a line, or of the trailer.
    line: Vec<u8>,
    seal: Option<Seal>,
    chunk: Option<Signed>,
    /// The trailer that was announced.
    trailer: Option<HeaderName>,
}

impl Chunked {
    /// Chunks are signed where there is a `seal`; `trailer` is what `x-amz-trailer` announced.
    pub(crate) fn new(seal: Option<Seal>, trailer: Option<HeaderName>) -> Self {
        Self { state: State::Size, line: Vec::new(), seal, chunk: None, trailer }
    }

    /// The next payload in `input`; `None` once all of `input` is used up.
    pub(crate) fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, Broken> {
        while !input.is_empty() {
            match self.state {
                State::Size => self.read_size(input)?,
                State::Payload(left) => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let payload = input.split_to(here);
                    if let Some(chunk) = &mut self.chunk {
                        chunk.hash.update(&payload);
                    }
                    let left = left - here as u64;
                    self.state = State::Payload(left);
                    if left == 0 {
                        self.end_chunk()?;
                        self.state = State::Crlf(2);
                    }
                    return Ok(Some(payload));
                }
                State::Crlf(left) => {
                    if input.get_u8() != if left == 2 { b'\r' } else { b'\n' } {
                        return Err(Broken::Framing("a chunk is longer than its size says"));
                    }
                    self.state = if left == 2 { State::Crlf(1) } else { State::Size };
                }
                State::Trailer => {
                    if self.line.len() + input.len() > MAX_TRAILER_BYTES {
                        return Err(Broken::Trailer);
                    }
                    self.line.extend_from_slice(input);
                    input.clear();
                }
            }
        }
        Ok(None)
    }

    /// The body has ended. The value of the announced trailer, if one was.
    pub(crate) fn finish(mut self) -> Result<Option<String>, Broken> {
        if self.state != State::Trailer {
            return Err(Broken::Short);
        }
        let (mut found, mut signature) = (None, None);
        let text = std::str::from_utf8(&self.line).map_err(|_| Broken::Trailer)?;
        // Clients disagree about empty lines around the trailer: none of them means anything.
        let lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or(Broken::Trailer)?;
            let value = value.trim_matches([' ', '\t']);
            let announced =
                self.trailer.as_ref().is_some_and(|t| name.eq_ignore_ascii_case(t.as_str()));
            let slot = if announced {
                &mut found
            } else if name.eq_ignore_ascii_case(TRAILER_SIGNATURE) && self.seal.is_some() {
                &mut signature
            } else {
                return Err(Broken::Trailer);
            };
            if slot.replace(value).is_some() {
                return Err(Broken::Trailer);
            }
        }
        let Some(name) = &self.trailer else {
            return if signature.is_none() { Ok(None) } else { Err(Broken::Trailer) };
        };
        let value = found.ok_or(Broken::Trailer)?;
        if let Some(seal) = &mut self.seal {
            let signature = signature.ok_or(Broken::Trailer)?;
            seal.check_trailer(&format!("{name}:{value}\n"), signature)?;
        }
        Ok(Some(value.to_owned()))
    }

    /// Reads up to the end of the line that tells a chunk's size.
    fn read_size(&mut self, input: &mut Bytes) -> Result<(), Broken> {
        let end = input.iter().position(|b| *b == b'\n');
        let here = end.map_or(input.len(), |at| at + 1);
        if self.line.len() + here > MAX_SIZE_LINE_BYTES {
            return Err(Broken::Framing("the line before a chunk is too long"));
        }
        self.line.extend_from_slice(&input.split_to(here));
        if end.is_none() {
            return Ok(());
        }
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r\n").and_then(|line| std::str::from_utf8(line).ok());
        let line = line.ok_or(Broken::Framing("the line before a chunk is malformed"))?;
        self.begin_chunk(line)
    }

    fn begin_chunk(&mut self, line: &str) -> Result<(), Broken> {
        let (size, extension) = match line.split_once(';') {
            Some((size, extension)) => (size, Some(extension)),
            None => (line, None),
        };
        let digits = (1..=16).contains(&size.len()) && size.bytes().all(|b| b.is_ascii_hexdigit());
        let size = u64::from_str_radix(size, 16).ok().filter(|_| digits);
        let size = size.ok_or(Broken::Framing("a chunk's size is no number"))?;
        self.chunk = match (&self.seal, extension) {
            (Some(_), Some(extension)) => {
                let signature = extension.strip_prefix("chunk-signature=");
                let signature =
                    signature.filter(|text| text.len() == 64).ok_or(Broken::Signature)?;
                let hash = digest::Context::new(&digest::SHA256);
                Some(Signed { signature: signature.to_owned(), hash })
            }
            (Some(_), None) => return Err(Broken::Signature),
            (None, Some(_)) => {
                return Err(Broken::Framing("a chunk of an unsigned body is signed"));
            }
            (None, None) => None,
        };
        self.state = match size {
            0 => {
                self.end_chunk()?;
                State::Trailer
            }
            size => State::Payload(size),
        };
        Ok(())
    }

    fn end_chunk(&mut self) -> Result<(), Broken> {
        match (&mut self.seal, self.chunk.take()) {
            (Some(seal), Some(chunk)) => seal.check_chunk(&chunk.hash.finish(), &chunk.signature),
            (None, None) => Ok(()),
            // A chunk is begun with a signature exactly where there is a seal.
            _ => Err(Broken::Signature),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Chunked, Seal};
    use crate::guard::derive_key;
    use crate::upload::decoder::Broken;
    use bytes::Bytes;
    use http::HeaderName;

    /// The seed of the documents' examples.
    fn seal(seed: &str) -> Seal {
        let key = derive_key("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "20130524", "us-east-1");
        Seal::new(key, "20130524T000000Z", "20130524/us-east-1/s3/aws4_request", seed)
    }

    fn read(
        mut chunked: Chunked,
        body: &[u8],
        step: usize,
    ) -> Result<(Vec<u8>, Option<String>), Broken> {
        let mut payload = Vec::new();
        for piece in body.chunks(step) {
            let mut input = Bytes::copy_from_slice(piece);
            while let Some(bytes) = chunked.next(&mut input)? {
                payload.extend_from_slice(&bytes);
            }
        }
        Ok((payload, chunked.finish()?))
    }

    fn signed() -> Chunked {
        let seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
        Chunked::new(Some(seal(seed)), None)
    }

    fn signed_body() -> Vec<u8> {
        let mut body = b"10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n".to_vec();
        body.extend([b'a'; 0x10000]);
        body.extend(b"\r\n400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n");
        body.extend([b'a'; 0x400]);
        body.extend(b"\r\n0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n");
        body
    }

    #[test]
    fn the_documents_signed_chunks_are_read() {
        for step in [1, 7, 86, 1024, 1 << 20] {
            let (payload, trailer) = read(signed(), &signed_body(), step).unwrap();
            assert!(
                payload.len() == 66_560 && payload.iter().all(|b| *b == b'a') && trailer.is_none()
            );
        }
    }

    fn with_trailer() -> Chunked {
        let seed = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";
        let name = HeaderName::from_static("x-amz-checksum-crc32c");
        Chunked::new(Some(seal(seed)), Some(name))
    }

    #[test]
    fn the_documents_signed_trailer_is_read_however_clients_end_it() {
        let mut head = b"10000;chunk-signature=b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2\r\n".to_vec();
        head.extend([b'a'; 0x10000]);
        head.extend(b"\r\n400;chunk-signature=1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7\r\n");
        head.extend([b'a'; 0x400]);
        head.extend(b"\r\n0;chunk-signature=2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\n");
        let name = "x-amz-checksum-crc32c:sOO8/Q==";
        let signature = "x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435";
        for tail in [
            format!("{name}\r\n{signature}\r\n\r\n"),
            format!("{name}\n\r\n{signature}\r\n\r\n"),
            format!("\r\n{name}\r\n{signature}"),
        ] {
            let body = [&head[..], tail.as_bytes()].concat();
            let (payload, trailer) = read(with_trailer(), &body, 1000).unwrap();
            assert_eq!((payload.len(), trailer.as_deref()), (66_560, Some("sOO8/Q==")), "{tail}");
        }
        let wrong = signature.replace("d81f", "d81e");
        for (tail, error) in [
            (format!("{name}\r\n{wrong}\r\n\r\n"), Broken::Signature),
            (format!("{name}\r\n\r\n"), Broken::Trailer),
            (format!("{signature}\r\n\r\n"), Broken::Trailer),
            (format!("{name}\r\n{name}\r\n{signature}\r\n\r\n"), Broken::Trailer),
            (format!("{name}\r\nx-amz-meta-a:1\r\n{signature}\r\n\r\n"), Broken::Trailer),
            (format!("{name}\r\n{signature}\r\n{}", "\n".repeat(5000)), Broken::Trailer),
            (String::new(), Broken::Trailer),
        ] {
            let body = [&head[..], tail.as_bytes()].concat();
            assert_eq!(read(with_trailer(), &body, 1000), Err(error), "{tail}");
        }
    }

    fn check(body: &str, expected: Result<&str, Broken>) {
        let name = HeaderName::from_static("x-amz-checksum-crc32");
        for step in [1, 3, 1000] {
            let found = read(Chunked::new(None, Some(name.clone())), body.as_bytes(), step);
            let found = found.map(|(payload, _)| String::from_utf8(payload).unwrap());
            assert_eq!(found, expected.clone().map(str::to_owned), "{body:?} by {step}");
        }
    }

    #[test]
    fn unsigned_chunks_are_read_strictly() {
        let tail = "0\r\nx-amz-checksum-crc32:y/Q5Jg==\r\n\r\n";
        check(&format!("5\r\n12345\r\n4\r\n6789\r\n{tail}"), Ok("123456789"));
        check(&format!("5\r\n12345\r\n4\r\n6789\r\n{}", tail.trim_end()), Ok("123456789"));
        check(&format!("00A\r\n0123456789\r\n{}", tail.replace(':', ": ")), Ok("0123456789"));
        check(tail, Ok(""));
        check("5\r\n12345\r\n", Err(Broken::Short));
        check("5\r\n123", Err(Broken::Short));
        check("5\r\n12345\r", Err(Broken::Short));
        check("5", Err(Broken::Short));
        check("", Err(Broken::Short));
        check("0\r\n\r\n", Err(Broken::Trailer));
        check("0\r\nx-amz-checksum-crc32\r\n\r\n", Err(Broken::Trailer));
        check("0\r\nx-amz-checksum-sha1:x\r\n\r\n", Err(Broken::Trailer));
        for odd in
            ["4\r\n12345\r\n", "x\r\n", "-1\r\n", "+1\r\n1\r\n", "1\n1\r\n", "\r\n", "5;a=b\r\n"]
        {
            let found = read(Chunked::new(None, None), odd.as_bytes(), 1);
            assert!(matches!(found, Err(Broken::Framing(_))), "{odd:?}: {found:?}");
        }
        let long = "0".repeat(300);
        assert!(matches!(
            read(Chunked::new(None, None), long.as_bytes(), 1),
            Err(Broken::Framing(_))
        ));
        let huge = "fffffffffffffffff\r\n";
        assert!(matches!(
            read(Chunked::new(None, None), huge.as_bytes(), 1),
            Err(Broken::Framing(_))
        ));
    }

    #[test]
    fn a_signed_chunk_that_is_changed_or_not_signed_is_refused() {
        let body = signed_body();
        for at in [20, 100, 0x10000, 0x10000 + 120, body.len() - 10] {
            let mut changed = body.clone();
            changed[at] ^= 1;
            assert!(read(signed(), &changed, 4096).is_err(), "{at}");
        }
        assert_eq!(read(signed(), b"0\r\n\r\n", 10), Err(Broken::Signature));
        assert_eq!(read(signed(), &body[..body.len() - 90], 4096), Err(Broken::Short));
    }
}
