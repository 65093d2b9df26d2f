//! A closed loop of GETs over some connections for some time.
//!
//! Each connection asks for the next object as soon as it has read the last; which one is drawn from a fixed sequence, so
//! that every server is asked the same.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;

use crate::client::{Answer, Connection};
use crate::content::Content;
use crate::signer::{Signer, unsigned};
use crate::wire::Source;

/// The bucket of every object of the benches.
pub const BUCKET: &str = "bench";

/// The requests for one set of objects at one server.
#[derive(Debug, Clone)]
pub struct Requests {
    address: SocketAddr,
    /// Each with the content that its answer must have.
    requests: Arc<[(Vec<u8>, Content)]>,
}

impl Requests {
    /// Requests for `keys` at `address`, signed now if there is a `signer`.
    pub fn new(address: SocketAddr, keys: &[String], signer: Option<&Signer>) -> Result<Self> {
        let host = address.to_string();
        let requests = keys
            .iter()
            .map(|key| {
                let path = format!("/{BUCKET}/{key}");
                let content = Content::of(key).with_context(|| format!("{key} names no size"))?;
                let request = match signer {
                    Some(signer) => signer.get(&host, &path)?,
                    None => unsigned(&host, &path),
                };
                Ok((request, content))
            })
            .collect::<Result<_>>()?;
        Ok(Self { address, requests })
    }

    /// Asks for every object once over one connection and checks each byte.
    pub async fn check_all(&self) -> Result<Tally> {
        let mut connection = Connection::open(self.address).await?;
        let mut tally = Tally::default();
        for (request, content) in &*self.requests {
            let answer = connection.read(request, Some(*content)).await?;
            tally.add(&answer, content)?;
        }
        Ok(tally)
    }

    /// Asks over `connections` for `window`; a request under way at its end is finished and counted.
    pub async fn run(&self, connections: usize, window: Duration) -> Result<Tally> {
        let mut opened = Vec::new();
        for _ in 0..connections {
            opened.push(Connection::open(self.address).await?);
        }
        let began = Instant::now();
        let mut loops = JoinSet::new();
        for (lane, connection) in opened.into_iter().enumerate() {
            loops.spawn(self.clone().ask(connection, Draw::new(lane), began + window));
        }
        let mut total = Tally::default();
        while let Some(tally) = loops.join_next().await {
            total.join(&tally??);
        }
        total.elapsed = began.elapsed();
        Ok(total)
    }

    async fn ask(
        self,
        mut connection: Connection,
        mut draw: Draw,
        until: Instant,
    ) -> Result<Tally> {
        let mut tally = Tally::default();
        loop {
            let (request, content) = &self.requests[draw.below(self.requests.len())];
            let answer = connection.get(request).await?;
            tally.add(&answer, content)?;
            if Instant::now() >= until {
                return Ok(tally);
            }
        }
    }
}

/// A sequence of numbers that is the same in every run: which object a reader asks for next.
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// The sequence of reader `lane`.
    #[must_use]
    pub fn new(lane: usize) -> Self {
        Self(lane as u64 + 1)
    }

    /// The next number, less than `bound`, which must not be zero.
    pub fn below(&mut self, bound: usize) -> usize {
        // xorshift64 (Marsaglia 2003), which never reaches zero from anything else.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// What came of a loop.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Answers with status 200 and the right length; anything else fails the loop.
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Of the requests, those that a Larder says it answered from memory.
    pub from_memory: u64,
    /// Of the requests, those that a Larder says it answered from the SSD.
    pub from_disk: u64,
    /// From the first request to the last answer.
    pub elapsed: Duration,
}

impl Tally {
    fn add(&mut self, answer: &Answer, content: &Content) -> Result<()> {
        ensure!(answer.status == 200, "a GET was answered {}", answer.status);
        ensure!(
            answer.body == content.size_bytes(),
            "a GET was answered with {} bytes",
            answer.body
        );
        self.requests += 1;
        self.bytes += answer.body;
        self.from_memory += u64::from(answer.source == Source::Memory);
        self.from_disk += u64::from(answer.source == Source::Disk);
        Ok(())
    }

    fn join(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.from_memory += other.from_memory;
        self.from_disk += other.from_disk;
    }

    /// Bytes per second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }

    /// Requests per second.
    #[must_use]
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::origin::{Held, serve};

    async fn requests(keys: &[&str]) -> Requests {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        tokio::spawn(serve(listener, Held::new()));
        let keys: Vec<_> = keys.iter().map(|key| (*key).to_owned()).collect();
        Requests::new(address, &keys, None).expect("keys that name their size")
    }

    #[tokio::test]
    async fn a_loop_counts_what_it_was_answered() {
        let requests = requests(&["70000/a", "70000/b", "70000/c"]).await;
        let checked = requests.check_all().await.expect("right bytes");
        assert_eq!((checked.requests, checked.bytes), (3, 210_000));
        let tally = requests.run(4, Duration::from_millis(30)).await.expect("answers");
        assert!(tally.requests >= 4, "{tally:?}");
        assert_eq!(tally.bytes, tally.requests * 70_000);
        assert_eq!((tally.from_memory, tally.from_disk), (0, 0));
        assert!(tally.elapsed >= Duration::from_millis(30), "{tally:?}");
    }

    #[tokio::test]
    async fn an_answer_that_is_not_the_object_ends_the_loop() {
        let mut wrong = requests(&["10/a"]).await;
        let content = Content::of("10/b").expect("a key");
        wrong.requests =
            wrong.requests.iter().map(|(request, _)| (request.clone(), content)).collect();
        let problem = wrong.check_all().await.expect_err("other bytes");
        assert!(format!("{problem:#}").contains("byte 0"), "{problem:#}");

        wrong.requests = [(unsigned("h", "/bench/none"), content)].into();
        let problem = wrong.run(2, Duration::from_millis(30)).await.expect_err("no such key");
        assert!(format!("{problem:#}").contains("404"), "{problem:#}");
    }

    #[test]
    fn draws_are_the_same_each_time_and_cover_all_objects() {
        let drawn = |lane| {
            let mut draw = Draw::new(lane);
            (0..200).map(|_| draw.below(8)).collect::<Vec<_>>()
        };
        assert_eq!(drawn(0), drawn(0));
        assert_ne!(drawn(0), drawn(1));
        assert!((0..8).all(|index| drawn(0).contains(&index)));
    }
}
