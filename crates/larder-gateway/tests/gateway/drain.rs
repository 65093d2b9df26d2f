//! Connections: how many, and how they end.

use super::support::{Node, Setup};
use larder_gateway::Drained;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(20);

async fn open(node: &Node, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(node.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads until the text ends with `tail`.
async fn read_to(stream: &mut TcpStream, tail: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(tail.as_bytes()) {
        let mut buffer = [0; 4096];
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut buffer)).await;
        let n = read.expect("something comes").unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buffer[..n]);
    }
    String::from_utf8(text).unwrap()
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    rest.is_empty() && read.is_ok()
}

fn anonymous(grace: Duration) -> Setup {
    Setup { anonymous: true, grace, ..Setup::default() }
}

#[tokio::test]
async fn a_drain_closes_idle_connections_and_lets_bodies_finish() {
    let mut node = Node::with(anonymous(Duration::from_secs(15))).await;
    let mut idle = open(&node, "/data/k").await;
    read_to(&mut idle, "0123456789").await;
    let mut fresh = TcpStream::connect(node.address).await.unwrap();
    let mut slow = open(&node, "/data/slow").await;
    read_to(&mut slow, "01234").await;
    node.stop.take().unwrap().send(()).unwrap();
    assert!(is_closed(&mut idle).await, "an idle connection is closed");
    assert!(is_closed(&mut fresh).await, "one that has asked nothing is closed");
    assert!(TcpStream::connect(node.address).await.is_err(), "nothing more is accepted");
    node.double.gate.notify_one();
    assert_eq!(read_to(&mut slow, "56789").await, "56789");
    assert!(is_closed(&mut slow).await);
    assert_eq!(node.served.await.unwrap(), Drained { cut: 0 });
}

#[tokio::test]
async fn what_is_not_done_within_the_grace_is_cut_and_counted() {
    let mut node = Node::with(anonymous(Duration::from_millis(300))).await;
    let mut slow = open(&node, "/data/slow").await;
    read_to(&mut slow, "01234").await;
    let started = Instant::now();
    node.stop.take().unwrap().send(()).unwrap();
    assert_eq!(node.served.await.unwrap(), Drained { cut: 1 });
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert!(is_closed(&mut slow).await);
}

#[tokio::test]
async fn a_connection_waits_until_another_is_gone() {
    let setup = Setup { connections: 2, ..anonymous(Duration::from_secs(5)) };
    let node = Node::with(setup).await;
    let mut first = open(&node, "/data/k").await;
    read_to(&mut first, "0123456789").await;
    let mut second = open(&node, "/data/k").await;
    read_to(&mut second, "0123456789").await;
    let metrics = super::objects::prometheus_text(&node);
    assert!(metrics.contains("larder_connections 2"), "{metrics}");
    let mut third = open(&node, "/data/k").await;
    let mut buffer = [0; 1];
    let early = tokio::time::timeout(Duration::from_millis(200), third.read(&mut buffer)).await;
    assert!(early.is_err(), "the third waits in the kernel's queue");
    drop(first);
    read_to(&mut third, "0123456789").await;
}
