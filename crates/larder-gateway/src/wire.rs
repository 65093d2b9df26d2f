//! What lies between a socket and hyper: time limits that hyper does not have, and a look at the
//! bytes that hyper takes for requests.
//!
//! hyper ends a header's line at a bare LF as well. A proxy in front of us that does not would
//! forward a second request inside a header's value, and two readers of one connection must never
//! disagree about where a request begins. So the heads of HTTP/1 requests are followed here, over
//! their bodies, for as long as the connection lives.

use memchr::memchr;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// The length of HTTP/2's preface, by which the two versions are told apart.
const PREFACE_BYTES: usize = 24;

/// How HTTP/2's preface begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// A line longer than this is refused by hyper, whose buffer is shorter.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// How long a client may leave an answer unread before its connection is closed: what it holds back
/// are bytes of the cache and requests to the origin. The same as nginx's `send_timeout`.
pub(crate) const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// What was seen of a connection's requests. Shared between the socket and the answers.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    unsound: AtomicBool,
    lost: AtomicBool,
}

impl Wire {
    /// Whether every head so far has had proper line ends and told one length at most: only then may
    /// hyper's reading of them be trusted.
    pub(crate) fn is_sound(&self) -> bool {
        !self.unsound.load(Ordering::Relaxed)
    }

    /// Whether it is unknown where the next head begins, so that the connection must end with this
    /// answer.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Follows the heads of requests through a connection's bytes.
#[derive(Debug)]
struct Follower {
    place: Place,
    /// The line that has begun, as far as it has come.
    line: Vec<u8>,
    /// Lines of the head so far.
    lines: usize,
    /// How long its body is, as far as it has told.
    length: Length,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Length {
    Untold,
    Bytes(u64),
    Chunked,
}

#[derive(Debug)]
enum Place {
    Head,
    /// So many bytes of a body are still to come.
    Body(u64),
    /// In the line that tells a chunk's size.
    ChunkSize,
    /// So many bytes of a chunk, and of the line end behind it, are still to come.
    Chunk(u64),
    /// Behind the last chunk.
    Trailer,
    /// HTTP/2, or lost.
    Elsewhere,
}

impl Follower {
    fn new() -> Self {
        Self { place: Place::Head, line: Vec::new(), lines: 0, length: Length::Untold }
    }

    fn follow(&mut self, mut bytes: &[u8], wire: &Wire) {
        while !bytes.is_empty() {
            match &mut self.place {
                Place::Elsewhere => return,
                Place::Body(left) | Place::Chunk(left) => {
                    let here = (*left).min(bytes.len() as u64);
                    *left -= here;
                    bytes = &bytes[here as usize..];
                    if *left == 0 {
                        let chunked = matches!(self.place, Place::Chunk(_));
                        self.place = if chunked { Place::ChunkSize } else { Place::Head };
                    }
                }
                Place::Head | Place::ChunkSize | Place::Trailer => {
                    let Some(end) = memchr(b'\n', bytes) else {
                        self.line.extend_from_slice(bytes);
                        if self.line.len() > MAX_LINE_BYTES {
                            self.lose(wire);
                        }
                        return;
                    };
                    let (line, rest) = bytes.split_at(end);
                    bytes = &rest[1..];
                    if self.line.is_empty() {
                        self.take_line(line, wire);
                    } else {
                        self.line.extend_from_slice(line);
                        let line = std::mem::take(&mut self.line);
                        self.take_line(&line, wire);
                    }
                }
            }
        }
    }

    /// A line without its LF.
    fn take_line(&mut self, line: &[u8], wire: &Wire) {
        let Some(line) = line.strip_suffix(b"\r") else {
            match self.place {
                Place::Head => wire.unsound.store(true, Ordering::Relaxed),
                _ => self.lose(wire),
            }
            return;
        };
        match self.place {
            Place::ChunkSize => self.take_size(line, wire),
            // What hyper takes of trailers it bounds itself.
            Place::Trailer if line.is_empty() => self.place = Place::Head,
            Place::Trailer => {}
            _ if line.is_empty() => self.end_head(wire),
            _ => self.take_field(line, wire),
        }
    }

    /// Anything but digits, and maybe an extension, hyper may read in its own way.
    fn take_size(&mut self, line: &[u8], wire: &Wire) {
        let digits = line.split(|b| *b == b';').next().unwrap_or_default();
        let plain = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
        let size = std::str::from_utf8(digits).ok().filter(|_| plain);
        match size.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            Some(0) => self.place = Place::Trailer,
            Some(size) => self.place = Place::Chunk(size + 2),
            None => self.lose(wire),
        }
    }

    fn end_head(&mut self, wire: &Wire) {
        // Blank lines before a request are skipped (RFC 9112 §2.2).
        if self.lines > 0 && !wire.is_lost() {
            self.place = match self.length {
                Length::Untold | Length::Bytes(0) => Place::Head,
                Length::Bytes(bytes) => Place::Body(bytes),
                Length::Chunked => Place::ChunkSize,
            };
            (self.lines, self.length) = (0, Length::Untold);
        }
    }

    fn take_field(&mut self, line: &[u8], wire: &Wire) {
        self.lines += 1;
        if self.lines == 1 {
            if line.starts_with(PREFACE) {
                self.place = Place::Elsewhere;
            }
            return;
        }
        let Some(colon) = memchr(b':', line) else { return };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let length = if name.eq_ignore_ascii_case(b"content-length") {
            let bytes = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
            bytes.map(Length::Bytes)
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            Some(Length::Chunked).filter(|_| value.eq_ignore_ascii_case(b"chunked"))
        } else {
            return;
        };
        match (self.length, length) {
            (Length::Untold, Some(length)) => self.length = length,
            // The same again is refused by hyper or by the guard, or means the same.
            (known, Some(length)) if known == length => {}
            // hyper would take one of the two, and a proxy before us the other.
            (_, Some(_)) => {
                wire.unsound.store(true, Ordering::Relaxed);
                self.lose(wire);
            }
            (_, None) => self.lose(wire),
        }
    }

    fn lose(&mut self, wire: &Wire) {
        wire.lost.store(true, Ordering::Relaxed);
        self.place = Place::Elsewhere;
    }
}

/// A socket whose client must send its first bytes promptly (until as many have come as tell the
/// HTTP versions apart, hyper's own time-out is not yet in force), and must go on taking what it
/// asked for.
pub(crate) struct Prompt<S> {
    stream: S,
    wire: Arc<Wire>,
    follower: Follower,
    /// Dropped once enough has come.
    deadline: Option<Pin<Box<Sleep>>>,
    seen: usize,
    /// When the client must have taken something; kept for the next time.
    stall: Option<Pin<Box<Sleep>>>,
    stalled: bool,
}

impl<S> Prompt<S> {
    /// `patience`: how long the first bytes may take.
    pub(crate) fn new(stream: S, wire: Arc<Wire>, patience: Duration) -> Self {
        Self {
            stream,
            wire,
            follower: Follower::new(),
            deadline: Some(Box::pin(sleep(patience))),
            seen: 0,
            stall: None,
            stalled: false,
        }
    }

    /// Passes on what a write came to, unless the client has taken nothing for too long.
    fn patient<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = false;
            return written;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(SEND_TIMEOUT)));
        if !self.stalled {
            self.stalled = true;
            stall.as_mut().reset(Instant::now() + SEND_TIMEOUT);
        }
        match stall.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prompt<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        let came = &buffer.filled()[before..];
        this.follower.follow(came, &this.wire);
        if let Some(deadline) = &mut this.deadline {
            if read.is_pending() && deadline.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            this.seen += came.len();
            if this.seen >= PREFACE_BYTES {
                this.deadline = None;
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prompt<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.patient(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.patient(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.patient(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.patient(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::{Follower, Prompt, SEND_TIMEOUT, Wire};
    use std::io::ErrorKind;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// (sound, lost), whatever the pieces in which the bytes come.
    fn check(bytes: &str, sound: bool, lost: bool) {
        for step in [1, 2, 3, 7, bytes.len()] {
            let (wire, mut follower) = (Wire::default(), Follower::new());
            for piece in bytes.as_bytes().chunks(step) {
                follower.follow(piece, &wire);
            }
            assert_eq!((wire.is_sound(), wire.is_lost()), (sound, lost), "{bytes:?} by {step}");
        }
    }

    #[test]
    fn a_bare_line_feed_is_seen_in_every_head_and_in_no_body() {
        let good = "GET /a HTTP/1.1\r\nhost: x\r\n\r\n";
        let bad = "GET /a HTTP/1.1\r\nhost: x\r\nx-a: b\n\nGET /b HTTP/1.1\r\n\r\n";
        let put = |body: &str| {
            format!("PUT /a HTTP/1.1\r\nhost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        };
        check(good, true, false);
        check(bad, false, false);
        check(&format!("\r\n\r\n{good}{good}"), true, false);
        check(&put("a\nb\n\nc"), true, false);
        check(&format!("{}{good}", put("a\n")), true, false);
        check(&format!("{}{bad}", put("a\n")), false, false);
        check(&format!("{}{}{bad}", put("x"), put("")), false, false);
        check(
            "PUT /a HTTP/1.1\r\nhost: x\r\nx-a: b\nContent-Length: 9\r\n\r\n123456789",
            false,
            false,
        );
        check("\nGET /a HTTP/1.1\r\n\r\n", false, false);
    }

    #[test]
    fn a_head_whose_end_of_body_is_in_doubt_is_the_last() {
        check("PUT /a HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n0\r\n\r\n", true, true);
        let (te, cl) = ("transfer-encoding: chunked\r\n", "content-length: 5\r\n");
        check(&format!("PUT /a HTTP/1.1\r\n{te}{cl}\r\n0\r\n\r\n"), false, true);
        check(&format!("PUT /a HTTP/1.1\r\n{cl}{te}\r\n0\r\n\r\n"), false, true);
        check(&format!("PUT /a HTTP/1.1\r\n{cl}content-length: 6\r\n\r\n"), false, true);
        check("PUT /a HTTP/1.1\r\ncontent-length: 1, 2\r\n\r\n", true, true);
        check("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\n\n\n", true, false);
    }

    #[test]
    fn chunks_are_followed_to_the_next_head() {
        let put =
            |chunks: &str| format!("PUT /a HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n{chunks}");
        let bad = "GET /a HTTP/1.1\r\nhost: x\nx-a: b\r\n\r\n";
        for chunks in [
            "0\r\n\r\n",
            "3\r\na\nb\r\n0;a=b\r\nx-a: 1\r\n\r\n",
            "A\r\n0\r\n\r\n56789\r\n0\r\n\r\n",
        ] {
            check(&put(chunks), true, false);
            check(&format!("{}{}", put(chunks), put(chunks)), true, false);
            check(&format!("{}{bad}", put(chunks)), false, false);
        }
        for chunks in ["x\r\n", " 1\r\n", "1 \r\n", "\r\n", "0\n", "fffffffffffffffff\r\n"] {
            check(&put(chunks), true, true);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_let_go_and_a_slow_one_is_not() {
        let (mut client, server) = tokio::io::duplex(16);
        let patience = Duration::from_secs(600);
        let mut server = Prompt::new(server, Arc::default(), patience);
        let slow = tokio::spawn(async move {
            let mut taken = [0; 8];
            for _ in 0..8 {
                tokio::time::sleep(SEND_TIMEOUT - Duration::from_secs(1)).await;
                client.read_exact(&mut taken).await.unwrap();
            }
            client
        });
        server.write_all(&[0; 64]).await.unwrap();
        let _silent = slow.await.unwrap();
        let error = server.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
