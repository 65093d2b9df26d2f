//! One HTTP/1.1 connection that asks and drains: the cheapest honest client we know, so that the servers get the processor.
//!
//! The response's head is parsed; the body is either thrown away inside the kernel (`MSG_TRUNC`: counted, not copied) or
//! compared, byte by byte, with what it must be. It refuses what has no Content-Length.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;

use crate::content::Content;
use crate::wire::{Head, Source, read_response};

/// Bytes read at a time while a head is awaited or a body compared.
const PIECE: usize = 16 * 1024;
/// The most bytes that one system call throws away.
const DRAIN: usize = 4 * 1024 * 1024;

/// An answer, read to its end.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body's length in bytes.
    pub body: u64,
    /// Where the body came from, as a Larder tells.
    pub source: Source,
    /// From before the request was written to after the first byte of the body was read (of the head, if there is no body).
    pub first_byte: Duration,
    /// From before the request was written to after the last byte was read.
    pub whole: Duration,
}

/// A keep-alive connection, used for one request at a time.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    piece: Vec<u8>,
    scrap: Vec<u8>,
}

impl Connection {
    /// Connects to `address`.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        // The scrap is only ever an address for the kernel to not write to: its pages are never touched.
        Ok(Self { stream, piece: Vec::with_capacity(PIECE), scrap: Vec::with_capacity(DRAIN) })
    }

    /// Sends `request`, throws the body away, and tells how it went.
    pub async fn get(&mut self, request: &[u8]) -> Result<Answer> {
        self.read(request, None).await
    }

    /// Sends `request`; a 200 must then have the bytes of `content`, if that is given.
    pub async fn read(&mut self, request: &[u8], content: Option<Content>) -> Result<Answer> {
        let began = Instant::now();
        self.stream.write_all(request).await.context("sending a request")?;
        let head = self.read_head().await?;
        self.piece.drain(..head.length);
        let early = self.piece.len() as u64;
        ensure!(early <= head.body, "{} bytes follow the response", early - head.body);
        let content = content.filter(|_| head.status == 200);
        if let Some(content) = content {
            ensure!(
                head.body == content.size_bytes(),
                "{} bytes instead of {}",
                head.body,
                content.size_bytes()
            );
            compare(content, 0, &self.piece)?;
        }
        let mut first_byte = began.elapsed();
        let mut offset = early;
        while offset < head.body {
            let count = match content {
                None => self.drain(head.body - offset).await?,
                Some(content) => self.check(content, offset).await?,
            };
            if offset == 0 {
                first_byte = began.elapsed();
            }
            offset += count;
        }
        ensure!(offset == head.body, "more bytes came than were announced");
        let (status, body, source) = (head.status, head.body, head.source);
        Ok(Answer { status, body, source, first_byte, whole: began.elapsed() })
    }

    async fn read_head(&mut self) -> Result<Head> {
        self.piece.clear();
        loop {
            if self.piece.len() == self.piece.capacity() {
                self.piece.reserve(PIECE);
            }
            if self.stream.read_buf(&mut self.piece).await.context("awaiting an answer")? == 0 {
                bail!("the server closed the connection before it answered");
            }
            if let Some(head) = read_response(&self.piece)? {
                return Ok(head);
            }
        }
    }

    /// Throws up to `most` bytes away, at least one.
    async fn drain(&mut self, most: u64) -> Result<u64> {
        let length = most.min(DRAIN as u64) as usize;
        let count = self
            .stream
            .async_io(Interest::READABLE, || {
                let scrap = &mut self.scrap.spare_capacity_mut()[..length];
                SockRef::from(&self.stream).recv_with_flags(scrap, libc::MSG_TRUNC)
            })
            .await
            .context("reading a body")?;
        ended_early(count, most)
    }

    async fn check(&mut self, content: Content, offset: u64) -> Result<u64> {
        let most = content.size_bytes() - offset;
        self.piece.clear();
        let count = self.stream.read_buf(&mut self.piece).await.context("reading a body")?;
        compare(content, offset, &self.piece)?;
        ended_early(count, most)
    }
}

fn compare(content: Content, offset: u64, got: &[u8]) -> Result<()> {
    match content.difference(offset, got) {
        None => Ok(()),
        Some(at) => bail!("byte {at} of the body is not the object's"),
    }
}

fn ended_early(count: usize, missing: u64) -> Result<u64> {
    if count == 0 {
        let short = io::Error::from(io::ErrorKind::UnexpectedEof);
        return Err(short).with_context(|| format!("the body is {missing} bytes short"));
    }
    Ok(count as u64)
}
