//! Just enough of HTTP/1.1 to count requests as they pass and to read a response that has a Content-Length.
//!
//! Not a validating parser: what it cannot read it says so and gives up on the connection, it never guesses.

use anyhow::{Context as _, Result, bail, ensure};

/// The longest request or response head that is looked into, in bytes.
const LONGEST_HEAD: usize = 64 * 1024;
/// The most header fields that are looked into.
const MOST_FIELDS: usize = 96;

/// A request that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The method, as sent.
    pub method: String,
    /// The request target, as sent: path and query.
    pub target: String,
    /// The Range header, if there was one.
    pub range: Option<String>,
}

/// Follows one connection's requests, byte by byte, and yields each request once its head is complete.
#[derive(Debug, Default)]
pub struct RequestMeter {
    state: State,
    held: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// That many bytes of a body with a known length are still to come.
    Body(u64),
    ChunkSize,
    /// That many bytes of a chunk, its closing CRLF included, are still to come.
    Chunk(u64),
    Trailer,
    /// Not HTTP/1.1 as we know it: nothing after this point is counted.
    Unreadable,
}

impl RequestMeter {
    /// Takes the next bytes of the connection; each request whose head is now complete goes to `seen`.
    pub fn feed(&mut self, mut input: &[u8], mut seen: impl FnMut(Seen)) {
        while !input.is_empty() {
            match self.state {
                State::Unreadable => return,
                State::Body(left) => {
                    let left = left - skip(&mut input, left);
                    self.state = if left == 0 { State::Head } else { State::Body(left) };
                }
                State::Chunk(left) => {
                    let left = left - skip(&mut input, left);
                    self.state = if left == 0 { State::ChunkSize } else { State::Chunk(left) };
                }
                State::Head | State::ChunkSize | State::Trailer => {
                    self.held.push(input[0]);
                    input = &input[1..];
                    if self.held.ends_with(b"\n") {
                        self.line_ended(&mut seen);
                    } else if self.held.len() > LONGEST_HEAD {
                        self.state = State::Unreadable;
                    }
                }
            }
        }
    }

    /// Whether the connection carried something that is not readable as HTTP/1.1 requests.
    #[must_use]
    pub fn gave_up(&self) -> bool {
        self.state == State::Unreadable
    }

    fn line_ended(&mut self, seen: &mut impl FnMut(Seen)) {
        let next = match self.state {
            State::Head if self.held.ends_with(b"\r\n\r\n") => match read_request(&self.held) {
                Ok((request, next)) => {
                    seen(request);
                    next
                }
                Err(_) => State::Unreadable,
            },
            State::ChunkSize => match httparse::parse_chunk_size(&self.held) {
                Ok(httparse::Status::Complete((_, 0))) => State::Trailer,
                // The chunk's bytes are followed by a CRLF of their own.
                Ok(httparse::Status::Complete((_, size))) => State::Chunk(size.saturating_add(2)),
                Ok(httparse::Status::Partial) => return,
                Err(_) => State::Unreadable,
            },
            State::Trailer if self.held == b"\r\n" => State::Head,
            State::Trailer => State::Trailer,
            _ => return,
        };
        self.held.clear();
        self.state = next;
    }
}

/// Drops up to `most` bytes from the front of `input` and tells how many.
fn skip(input: &mut &[u8], most: u64) -> u64 {
    let count = most.min(input.len() as u64);
    *input = &input[count as usize..];
    count
}

fn read_request(head: &[u8]) -> Result<(Seen, State)> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    ensure!(request.parse(head)?.is_complete(), "the head ended early");
    let field = |name: &str| {
        request
            .headers
            .iter()
            .find(|field| field.name.eq_ignore_ascii_case(name))
            .map(|field| String::from_utf8_lossy(field.value).into_owned())
    };
    let next = if field("transfer-encoding").is_some() {
        State::ChunkSize
    } else {
        match field("content-length").map_or(Ok(0), |length| length.trim().parse())? {
            0 => State::Head,
            length => State::Body(length),
        }
    };
    let seen = Seen {
        method: request.method.context("no method")?.to_owned(),
        target: request.path.context("no target")?.to_owned(),
        range: field("range"),
    };
    Ok((seen, next))
}

/// Which tier a Larder says that it answered from (`x-larder-cache`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From memory.
    Memory,
    /// From the SSD.
    Disk,
    /// From the origin.
    Origin,
    /// No such header, or a value that the benches do not know.
    Unsaid,
}

/// The head of a response whose body has a known length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// How many bytes the head takes, its closing empty line included.
    pub length: usize,
    /// The status code.
    pub status: u16,
    /// The body's length in bytes.
    pub body: u64,
    /// Where the body came from, as a Larder tells.
    pub source: Source,
}

/// Reads a response head from the front of `input`; `None` while it is incomplete.
///
/// Fails if it is no HTTP/1.1 response, or has no Content-Length: a length that is only known at the end of the
/// connection or of the last chunk cannot be drained unread.
pub fn read_response(input: &[u8]) -> Result<Option<Head>> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(input).context("reading a response head")? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial if input.len() > LONGEST_HEAD => bail!("the head does not end"),
        httparse::Status::Partial => return Ok(None),
    };
    let status = response.code.context("a response without a status")?;
    let mut body = None;
    let mut source = Source::Unsaid;
    for field in response.headers {
        if field.name.eq_ignore_ascii_case("content-length") {
            body = Some(std::str::from_utf8(field.value)?.trim().parse()?);
        } else if field.name.eq_ignore_ascii_case("x-larder-cache") {
            source = match field.value {
                b"memory" => Source::Memory,
                b"disk" => Source::Disk,
                b"origin" => Source::Origin,
                _ => Source::Unsaid,
            };
        }
    }
    let body = body.with_context(|| format!("a response {status} without Content-Length"))?;
    Ok(Some(Head { length, status, body, source }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `input` in pieces of `step` bytes and returns "METHOD TARGET RANGE" of each request seen.
    fn metered(input: &[u8], step: usize) -> (Vec<String>, bool) {
        let mut meter = RequestMeter::default();
        let mut seen = Vec::new();
        for piece in input.chunks(step) {
            meter.feed(piece, |it| {
                seen.push(format!("{} {} {}", it.method, it.target, it.range.unwrap_or_default()));
            });
        }
        (seen, meter.gave_up())
    }

    #[test]
    fn requests_are_counted_whatever_the_pieces_they_come_in() {
        let input = b"GET /b/k?x=1 HTTP/1.1\r\nHost: h\r\nRange: bytes=0-9\r\n\r\n\
            PUT /b/p HTTP/1.1\r\nHost: h\r\ncontent-length: 30\r\n\r\nGET /no HTTP/1.1\r\nHost: h\r\n\r\n-\
            PUT /b/c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
            5;x=y\r\nGET /\r\n10\r\n0123456789abcdef\r\n0\r\nx-sum: 1\r\n\r\n\
            HEAD /b/k HTTP/1.1\r\nHost: h\r\n\r\n";
        let want = ["GET /b/k?x=1 bytes=0-9", "PUT /b/p ", "PUT /b/c ", "HEAD /b/k "];
        for step in [1, 2, 7, 64, 4096] {
            assert_eq!(metered(input, step), (want.map(String::from).to_vec(), false), "{step}");
        }
    }

    #[test]
    fn what_is_not_http_is_given_up_rather_than_guessed() {
        for input in ["\x16\x03\x01 hello\r\n\r\n", "PUT / HTTP/1.1\r\ncontent-length: x\r\n\r\n"] {
            assert_eq!(metered(input.as_bytes(), 5), (vec![], true), "{input:?}");
        }
        assert!(metered(&vec![b'a'; LONGEST_HEAD + 2], 4096).1);
    }

    #[test]
    fn a_response_head_tells_status_length_and_source() {
        let head =
            b"HTTP/1.1 206 Partial Content\r\nContent-Length: 12\r\nX-Larder-Cache: disk\r\n\r\n";
        for cut in [0, 5, head.len() - 1] {
            assert_eq!(read_response(&head[..cut]).expect("a prefix of a head"), None);
        }
        let want = Head { length: head.len(), status: 206, body: 12, source: Source::Disk };
        let mut input = head.to_vec();
        input.extend_from_slice(b"body");
        assert_eq!(read_response(&input).expect("a whole head"), Some(want));
    }

    #[test]
    fn a_response_without_a_length_is_refused() {
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(read_response(chunked).is_err());
        assert!(read_response(b"SSH-2.0-x\r\n\r\n").is_err());
    }
}
