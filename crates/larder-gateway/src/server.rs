//! Sockets and connections: how many, how long, and how they end.
//!
//! Invariant: a listener accepts nothing while its last connection waits for a permit, so that a
//! flood waits in the kernel's queue, not in our memory. After the shutdown signal nothing is accepted, idle connections
//! are told to close, and started answers get the grace period.

use crate::gateway::Gateway;
use crate::tls::Tls;
use crate::wire::{Prompt, Wire};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

/// How long a client may take over a request's header, which is also how long an idle HTTP/1.1
/// connection is kept.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a client may take over a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may leave an HTTP/2 ping unanswered.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// hyper's buffer for a header section: more than the guard takes, so that S3's own answer is given
/// for sections that are only somewhat too long.
const MAX_BUFFER_BYTES: usize = 32 * 1024;

/// The most requests at once on one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;

/// Connections that wait in the kernel to be accepted.
const BACKLOG: u32 = 4096;

/// Where to listen. The sockets are bound already.
#[derive(Debug, Default)]
pub struct Listeners {
    /// TCP sockets.
    pub tcp: Vec<TcpListener>,
    /// A Unix socket; never TLS.
    pub unix: Option<UnixListener>,
    /// TLS for the TCP sockets.
    pub tls: Option<Tls>,
}

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still busy when the grace period was over, and were cut.
    pub cut: usize,
}

/// Binds a TCP socket; tells the address that it got, for port 0.
///
/// # Errors
///
/// What the system says; to be told with the address.
pub fn bind_tcp(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Binds a Unix socket, in place of one that a killed process left behind.
///
/// # Errors
///
/// What the system says; `AddrInUse` where somebody answers on it.
pub async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    // A regular file refuses connections as well, and may be precious.
    let left_behind = match tokio::fs::symlink_metadata(path).await {
        Ok(there) => there.file_type().is_socket(),
        Err(_) => false,
    };
    if left_behind {
        match UnixStream::connect(path).await {
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                tokio::fs::remove_file(path).await?;
            }
            // Something that binding will complain about better.
            Err(_) => {}
        }
    }
    UnixListener::bind(path)
}

enum Listener {
    Tcp(TcpListener, Option<TlsAcceptor>),
    Unix(UnixListener),
}

enum Accepted {
    Tcp(TcpStream, Option<TlsAcceptor>),
    Unix(UnixStream),
}

impl Listener {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener, tls) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Accepted::Tcp(stream, tls.clone()))
            }
            Self::Unix(listener) => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }
}

impl Gateway {
    /// Serves until `shutdown` resolves, then drains. Returns within the grace period after that.
    pub async fn serve(
        self: &Arc<Self>,
        listeners: Listeners,
        shutdown: impl Future<Output = ()>,
    ) -> Drained {
        let (stop, stopping) = watch::channel(false);
        let permits = Arc::new(Semaphore::new(self.connections));
        let mut accepting = JoinSet::new();
        let mut watching = JoinSet::new();
        let Listeners { tcp, unix, tls } = listeners;
        let tcp = tcp.into_iter().map(|l| Listener::Tcp(l, tls.as_ref().map(Tls::acceptor)));
        for listener in tcp.chain(unix.map(Listener::Unix)) {
            let (gateway, permits) = (self.clone(), permits.clone());
            accepting.spawn(gateway.accept(listener, permits, stopping.clone()));
        }
        if let Some(tls) = tls {
            watching.spawn(tls.watch());
        }
        shutdown.await;
        let deadline = Instant::now() + self.grace;
        let _ = stop.send(true);
        let mut cut = 0;
        while let Some(connections) = accepting.join_next().await {
            cut += drain(connections.unwrap_or_default(), deadline).await;
        }
        Drained { cut }
    }

    /// Accepts until told to stop, and hands over the connections that are left then.
    async fn accept(
        self: Arc<Self>,
        listener: Listener,
        permits: Arc<Semaphore>,
        mut stopping: watch::Receiver<bool>,
    ) -> JoinSet<()> {
        let mut connections = JoinSet::new();
        let told = stopping.clone();
        let stopped = told_to_stop(&mut stopping);
        tokio::pin!(stopped);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut stopped => return connections,
            };
            match accepted {
                Ok(accepted) => {
                    let permit = tokio::select! {
                        permit = permits.clone().acquire_owned() => permit.ok(),
                        () = &mut stopped => return connections,
                    };
                    let gateway = self.clone();
                    connections.spawn(gateway.connection(accepted, permit, told.clone()));
                }
                Err(error) => {
                    // Out of descriptors, or a client that went away in the queue.
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(Duration::from_millis(20)).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
    }

    async fn connection(
        self: Arc<Self>,
        accepted: Accepted,
        permit: Option<OwnedSemaphorePermit>,
        mut stopping: watch::Receiver<bool>,
    ) {
        let gauge = Counted::new(&self.metrics().connections);
        match accepted {
            Accepted::Tcp(stream, None) => Box::pin(self.converse(stream, stopping)).await,
            Accepted::Unix(stream) => Box::pin(self.converse(stream, stopping)).await,
            Accepted::Tcp(stream, Some(tls)) => {
                let shaken = tokio::select! {
                    shaken = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => shaken,
                    () = told_to_stop(&mut stopping) => return,
                };
                match shaken {
                    Ok(Ok(stream)) => Box::pin(self.converse(stream, stopping)).await,
                    Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                    Err(_) => tracing::debug!("TLS handshake took too long"),
                }
            }
        }
        drop((gauge, permit));
    }

    async fn converse<S>(self: Arc<Self>, stream: S, mut stopping: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let wire = Arc::new(Wire::default());
        let io = TokioIo::new(Prompt::new(stream, wire.clone(), HEADER_TIMEOUT));
        let service = service_fn(move |request| {
            let (gateway, wire) = (self.clone(), wire.clone());
            async move { Ok::<_, Infallible>(gateway.answer(request, &wire).await) }
        });
        let builder = builder();
        let connection = builder.serve_connection(io, service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = told_to_stop(&mut stopping) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended");
        }
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_BUFFER_BYTES as u32)
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(HEADER_TIMEOUT)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Resolves once serving is to end, or its owner is gone.
async fn told_to_stop(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Waits for connections until `deadline`, then cuts the rest; tells how many those were.
async fn drain(mut connections: JoinSet<()>, deadline: Instant) -> usize {
    while let Ok(Some(_)) = timeout_at(deadline, connections.join_next()).await {}
    while connections.try_join_next().is_some() {}
    let cut = connections.len();
    connections.shutdown().await;
    cut
}

/// Counts a connection for as long as it lives, however its task ends.
struct Counted(prometheus::IntGauge);

impl Counted {
    fn new(gauge: &prometheus::IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::bind_unix;

    #[tokio::test]
    async fn a_socket_that_was_left_behind_is_replaced_and_a_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s3.sock");
        drop(bind_unix(&path).await.unwrap());
        let _listening = bind_unix(&path).await.unwrap();
        assert!(bind_unix(&path).await.is_err(), "somebody answers on it");
        let file = dir.path().join("larder.toml");
        std::fs::write(&file, "precious").unwrap();
        assert!(bind_unix(&file).await.is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    }
}
