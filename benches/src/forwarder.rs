//! A TCP forwarder that puts distance between a client and an origin, and counts what passes.
//!
//! Each connection has a round-trip time and a bandwidth of its own. The whole round trip is charged on the way towards
//! the origin, once for a new connection's handshake and once for every piece sent; nothing is held back on the way to
//! the client. A client sees no difference (its first byte comes one round trip after the request either way), and the
//! forwarder then holds no window of bytes in flight: a client that closes early has cost the origin little more than
//! it read. It is not a model of TCP: no loss, no slow start, no limit that several connections share.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::wire::{RequestMeter, Seen};

/// Bytes read from a socket at a time.
const PIECE: usize = 32 * 1024;
/// What the kernel may hold for us on either side of the way to the client. It doubles this for its own bookkeeping.
const SOCKET_BUFFER: u32 = 64 * 1024;
/// Pieces on their way to the origin: enough for 100 MB/s over a 30 ms round trip.
const PIECES_UNDER_WAY: usize = 128;
/// A connection that lags its rate by less than this was waiting for a processor, and catches up; one that lags by more
/// was idle, and starts afresh. Less than a usual round trip, so that no request finds anything saved up.
const CATCH_UP: Duration = Duration::from_millis(15);
/// The runtime's timer ticks in milliseconds: the last one before a deadline is spent yielding.
const TIMER_TICK: Duration = Duration::from_millis(1);
/// The most requests that are remembered; further ones are only counted.
const MOST_REMEMBERED: usize = 100_000;

/// What a connection is like.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// The time from a request's last byte sent to its answer's first byte received, the origin's own time aside.
    pub round_trip: Duration,
    /// The bandwidth of one connection in each direction, in bytes per second.
    pub bytes_per_second: u64,
}

/// What has passed since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// Requests whose head has passed.
    pub requests: u64,
    /// Bytes taken from clients.
    pub bytes_sent: u64,
    /// Bytes handed to clients.
    pub bytes_received: u64,
    /// Connections that carried something other than HTTP/1.1, whose requests are therefore not all counted.
    pub unreadable: u64,
}

#[derive(Debug, Default)]
struct Tally {
    connections: AtomicU64,
    requests: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    unreadable: AtomicU64,
    remembered: Mutex<Vec<Seen>>,
}

/// A running forwarder. Dropping it ends it and every connection through it.
#[derive(Debug)]
pub struct Forwarder {
    address: SocketAddr,
    tally: Arc<Tally>,
    task: JoinHandle<()>,
}

impl Forwarder {
    /// Starts to forward what connects to `listener` to `upstream`, each connection over a `link` of its own.
    pub fn start(listener: TcpListener, upstream: SocketAddr, link: Link) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let tally = Arc::<Tally>::default();
        let task = tokio::spawn(accept(listener, upstream, link, Arc::clone(&tally)));
        Ok(Self { address, tally, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has passed so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            connections: read(&self.tally.connections),
            requests: read(&self.tally.requests),
            bytes_sent: read(&self.tally.bytes_sent),
            bytes_received: read(&self.tally.bytes_received),
            unreadable: read(&self.tally.unreadable),
        }
    }

    /// The requests remembered whose target contains `part`, in the order in which they passed.
    #[must_use]
    pub fn requests_for(&self, part: &str) -> Vec<Seen> {
        let remembered = self.tally.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.iter().filter(|seen| seen.target.contains(part)).cloned().collect()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, upstream: SocketAddr, link: Link, tally: Arc<Tally>) {
    let mut connections = JoinSet::new();
    // The listener fails when descriptors run out; the bench then sees refused connections and says so.
    while let Ok((client, _)) = listener.accept().await {
        tally.connections.fetch_add(1, Ordering::Relaxed);
        let tally = Arc::clone(&tally);
        // Either side hanging up is how a connection ends, and the other side is told by the drop.
        connections.spawn(async move { drop(forward(client, upstream, link, &tally).await) });
        while connections.try_join_next().is_some() {}
    }
}

async fn forward(
    client: TcpStream,
    upstream: SocketAddr,
    link: Link,
    tally: &Tally,
) -> io::Result<()> {
    let established = Instant::now() + link.round_trip;
    client.set_nodelay(true)?;
    SockRef::from(&client).set_send_buffer_size(SOCKET_BUFFER as usize)?;
    let socket = match upstream {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    let origin = socket.connect(upstream).await?;
    origin.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_origin, to_origin) = origin.into_split();
    let (send, receive) = mpsc::channel(PIECES_UNDER_WAY);
    tokio::try_join!(
        take(from_client, send, established, link, tally),
        deliver(receive, to_origin),
        hand_back(from_origin, to_client, link, tally),
    )?;
    Ok(())
}

/// A piece of a request and when it reaches the origin.
type UnderWay = (Instant, Vec<u8>);

/// Takes a client's bytes, counts its requests, and dates each piece.
async fn take(
    mut client: OwnedReadHalf,
    send: mpsc::Sender<UnderWay>,
    established: Instant,
    link: Link,
    tally: &Tally,
) -> io::Result<()> {
    let mut pace = Pace::new(link);
    let mut meter = RequestMeter::default();
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        if client.read_buf(&mut piece).await? == 0 {
            return Ok(());
        }
        let readable = !meter.gave_up();
        meter.feed(&piece, |seen| remember(tally, seen));
        if readable && meter.gave_up() {
            tally.unreadable.fetch_add(1, Ordering::Relaxed);
        }
        tally.bytes_sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
        let sent = pace.ready().max(established);
        pace.passed(piece.len());
        if send.send((sent + link.round_trip, piece)).await.is_err() {
            return Ok(());
        }
    }
}

fn remember(tally: &Tally, seen: Seen) {
    tally.requests.fetch_add(1, Ordering::Relaxed);
    let mut remembered = tally.remembered.lock().unwrap_or_else(PoisonError::into_inner);
    if remembered.len() < MOST_REMEMBERED {
        remembered.push(seen);
    }
}

async fn deliver(
    mut receive: mpsc::Receiver<UnderWay>,
    mut origin: OwnedWriteHalf,
) -> io::Result<()> {
    while let Some((due, piece)) = receive.recv().await {
        sleep_until(due).await;
        origin.write_all(&piece).await?;
    }
    origin.shutdown().await
}

/// Hands an origin's bytes to the client at the link's rate, reading no more than one piece ahead.
async fn hand_back(
    mut origin: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    link: Link,
    tally: &Tally,
) -> io::Result<()> {
    let mut pace = Pace::new(link);
    let mut piece = vec![0; PIECE];
    loop {
        tokio::time::sleep_until(pace.ready()).await;
        let count = origin.read(&mut piece).await?;
        if count == 0 {
            return client.shutdown().await;
        }
        pace.restart_if_idle();
        client.write_all(&piece[..count]).await?;
        tally.bytes_received.fetch_add(count as u64, Ordering::Relaxed);
        pace.passed(count);
    }
}

/// When a link with a fixed rate is free again: each byte takes its time, and an idle link saves nothing up.
struct Pace {
    free: Instant,
    bytes_per_second: u64,
}

impl Pace {
    fn new(link: Link) -> Self {
        Self { free: Instant::now(), bytes_per_second: link.bytes_per_second.max(1) }
    }

    /// The earliest time for the next byte.
    fn ready(&mut self) -> Instant {
        self.restart_if_idle();
        self.free
    }

    fn restart_if_idle(&mut self) {
        let now = Instant::now();
        if self.free + CATCH_UP < now {
            self.free = now;
        }
    }

    fn passed(&mut self, bytes: usize) {
        self.free += Duration::from_nanos(bytes as u64 * 1_000_000_000 / self.bytes_per_second);
    }
}

/// Like the runtime's `sleep_until`, and exact to some tens of microseconds.
async fn sleep_until(deadline: Instant) {
    tokio::time::sleep_until(deadline - TIMER_TICK).await;
    while Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Connection;
    use crate::content::Content;
    use crate::origin::{Held, serve};
    use crate::signer::unsigned;

    async fn start(link: Link) -> (Forwarder, JoinHandle<io::Result<()>>) {
        let origin = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let upstream = origin.local_addr().expect("a bound address");
        let served = tokio::spawn(serve(origin, Held::new()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        (Forwarder::start(listener, upstream, link).expect("a forwarder"), served)
    }

    #[tokio::test]
    async fn bytes_pass_unchanged_and_connections_requests_and_ranges_are_counted() {
        let link = Link { round_trip: Duration::from_millis(2), bytes_per_second: 1 << 30 };
        let (forwarder, served) = start(link).await;
        let key = "3000001/a";
        let request = unsigned("h", &format!("/bench/{key}"));
        for _ in 0..2 {
            let mut connection = Connection::open(forwarder.address()).await.expect("a connection");
            for _ in 0..3 {
                let content = Content::of(key).expect("a key");
                let answer = connection.read(&request, Some(content)).await.expect("an answer");
                assert_eq!((answer.status, answer.body), (200, 3_000_001));
            }
        }
        let mut connection = Connection::open(forwarder.address()).await.expect("a connection");
        let ranged = b"GET /bench/3000001/b HTTP/1.1\r\nhost: h\r\nrange: bytes=0-9\r\n\r\n";
        assert_eq!(connection.get(ranged).await.expect("an answer").body, 10);

        let counts = forwarder.counts();
        assert_eq!((counts.connections, counts.requests, counts.unreadable), (3, 7, 0));
        assert!(counts.bytes_received > 6 * 3_000_001, "{counts:?}");
        assert_eq!(counts.bytes_sent, 6 * request.len() as u64 + ranged.len() as u64);
        assert_eq!(forwarder.requests_for(key).len(), 6);
        assert_eq!(forwarder.requests_for("/b")[6].range.as_deref(), Some("bytes=0-9"));
        served.abort();
    }

    #[tokio::test]
    async fn a_client_that_closes_early_costs_the_origin_little_more_than_it_read() {
        let link = Link { round_trip: Duration::ZERO, bytes_per_second: 50_000_000 };
        let (forwarder, served) = start(link).await;
        let mut client = TcpStream::connect(forwarder.address()).await.expect("a connection");
        client.write_all(&unsigned("h", "/bench/100000000/a")).await.expect("a request sent");
        let mut some = vec![0; 100_000];
        client.read_exact(&mut some).await.expect("the first bytes");
        drop(client);
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut before = forwarder.counts().bytes_received;
        // Ended once nothing more passes in ten turns of the timer.
        loop {
            tokio::time::sleep(10 * TIMER_TICK).await;
            let now = forwarder.counts().bytes_received;
            if now == before {
                break;
            }
            assert!(Instant::now() < deadline, "the connection outlives its client: {now} bytes");
            before = now;
        }
        assert!(before < 100_000_000 / 4, "{before} bytes passed for a client that read 100,000");
        served.abort();
    }

    #[tokio::test]
    async fn a_request_and_a_new_connection_each_cost_a_round_trip() {
        let link = Link { round_trip: Duration::from_millis(20), bytes_per_second: 1 << 30 };
        let (forwarder, served) = start(link).await;
        let began = Instant::now();
        let mut connection = Connection::open(forwarder.address()).await.expect("a connection");
        let request = unsigned("h", "/bench/10/a");
        connection.get(&request).await.expect("an answer");
        let second = connection.get(&request).await.expect("an answer");
        // Lower bounds alone: a busy machine may always be slower.
        assert!(began.elapsed() >= 3 * link.round_trip, "{:?}", began.elapsed());
        assert!(second.first_byte >= link.round_trip, "{:?}", second.first_byte);
        served.abort();
    }
}
