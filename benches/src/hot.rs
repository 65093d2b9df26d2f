//! Hot GETs: Larder from memory beside s3s from memory, bare hyper and nginx's `proxy_cache`.
//!
//! Every server runs in a process of its own; all are asked the same by the same load generator, in turns. Larder and s3s
//! verify a Signature Version 4 on each request, which is checked before anything is measured; the others verify nothing.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::client::Connection;
use crate::larder::{Larder, Setting, signer};
use crate::load::{BUCKET, Requests};
use crate::nginx::{Nginx, find_or_fetch};
use crate::process::{Server, start_own};
use crate::report::{Bar, Series, Verdicts, size_name};

/// How many objects of which size, and the least that Larder's rate may be of s3s's.
pub const SIZES: [(u64, usize, f64); 4] =
    [(4 << 10, 64, 0.85), (128 << 10, 32, 0.85), (1 << 20, 16, 0.95), (8 << 20, 8, 0.95)];

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    /// Rounds of each size.
    pub count: usize,
    /// How long each server is asked in a round.
    pub window: Duration,
    /// Connections of the load generator.
    pub connections: usize,
}

/// The keys of the hot objects of `size`.
#[must_use]
pub fn keys(size: u64) -> Vec<String> {
    let count = SIZES.iter().find(|(it, ..)| *it == size).map_or(0, |(_, count, _)| *count);
    (0..count).map(|index| format!("{size}/hot-{index}")).collect()
}

/// All keys of the hot objects: what the compared servers hold in memory.
pub fn all_keys() -> impl Iterator<Item = String> {
    SIZES.into_iter().flat_map(|(size, ..)| keys(size))
}

/// One of the servers compared, and its figures for the size at hand.
struct Contestant<'a> {
    name: &'static str,
    server: &'a Server,
    address: SocketAddr,
    signed: bool,
    rate: Series,
    cpu_per_request: Series,
    cpu_per_gigabyte: Series,
}

impl<'a> Contestant<'a> {
    fn new(name: &'static str, server: &'a Server, address: SocketAddr, signed: bool) -> Self {
        let (rate, cpu_per_request, cpu_per_gigabyte) = Default::default();
        Self { name, server, address, signed, rate, cpu_per_request, cpu_per_gigabyte }
    }

    fn requests(&self, size: u64) -> Result<Requests> {
        let signer = self.signed.then(signer);
        Requests::new(self.address, &keys(size), signer.as_ref())
    }

    async fn measure(&mut self, requests: &Requests, rounds: Rounds) -> Result<()> {
        let before = self.server.cpu_seconds()?;
        let tally = requests
            .run(rounds.connections, rounds.window)
            .await
            .with_context(|| format!("asking {}", self.name))?;
        let cpu = self.server.cpu_seconds()? - before;
        ensure!(tally.requests > 0, "{} answered nothing in {:?}", self.name, rounds.window);
        if self.name == LARDER {
            let missed = tally.requests - tally.from_memory;
            ensure!(missed == 0, "{missed} of {} hot GETs were not from memory", tally.requests);
        }
        self.rate.push(tally.requests_per_second());
        self.cpu_per_request.push(cpu * 1e6 / tally.requests as f64);
        self.cpu_per_gigabyte.push(cpu * 1e9 / tally.bytes as f64);
        Ok(())
    }
}

const LARDER: &str = "larder";
const S3S: &str = "s3s from memory";

/// Measures, prints, and tells which bars were met. Files go to `dir`, tools to `tools`.
pub async fn run(rounds: Rounds, sizes: &[u64], dir: &Path, tools: &Path) -> Result<Verdicts> {
    let none: [OsString; 0] = [];
    let (hyper, hyper_address) = start_own("bare-hyper", &none, dir).await?;
    let (s3s, s3s_address) = start_own("s3s-memory", &none, dir).await?;
    let setting = Setting { freshness: "immutable", limit: "2GiB", memory: "1GiB", disk: None };
    let larder = Larder::start(hyper_address, &setting, dir).await?;
    let nginx = match find_or_fetch(tools) {
        Ok(program) => Some(Nginx::start(&program, hyper_address, dir).await?),
        Err(reason) => {
            println!("nginx is left out: {reason:#}");
            None
        }
    };
    println!("larder is process {}, s3s-memory {}\n", larder.server.pid(), s3s.pid());
    for address in [larder.address, s3s_address] {
        refuses_forgery(address).await?;
    }

    let mut verdicts = Verdicts::default();
    for &(size, _, bar) in
        SIZES.iter().filter(|(size, ..)| sizes.is_empty() || sizes.contains(size))
    {
        let mut contestants = vec![
            Contestant::new(LARDER, &larder.server, larder.address, true),
            Contestant::new(S3S, &s3s, s3s_address, true),
            Contestant::new("bare hyper", &hyper, hyper_address, false),
        ];
        if let Some(nginx) = &nginx {
            contestants.push(Contestant::new("nginx", &nginx.server, nginx.address, false));
        }
        compare(&mut contestants, size, rounds).await?;
        let ratio = print(&contestants, size);
        let what = format!("hot {} GET, larder by s3s from memory", size_name(size));
        verdicts.hold(&what, ratio, Bar::AtLeast, bar);
    }
    Ok(verdicts)
}

async fn compare(contestants: &mut [Contestant<'_>], size: u64, rounds: Rounds) -> Result<()> {
    let mut requests = Vec::new();
    for it in &*contestants {
        let wanted = it.requests(size)?;
        // Twice: the first fills the caches, and the second is as hot as what follows.
        for _ in 0..2 {
            let checked = wanted.check_all().await;
            checked.with_context(|| format!("checking the bytes of {}", it.name))?;
        }
        requests.push(wanted);
    }
    for round in 0..rounds.count {
        // Another one begins each time, so that none always follows the same.
        for turn in 0..contestants.len() {
            let index = (round + turn) % contestants.len();
            contestants[index].measure(&requests[index], rounds).await?;
        }
    }
    Ok(())
}

/// Prints the table of one size; returns the median ratio of Larder to s3s.
fn print(contestants: &[Contestant<'_>], size: u64) -> f64 {
    let name = size_name(size);
    println!(
        "{name:8} {:16} {:>10} {:>7} {:>13} {:>11}",
        "", "requests/s", "GB/s", "CPU µs/req", "CPU s/GB"
    );
    for it in contestants {
        let rate = it.rate.median();
        println!(
            "{:8} {:16} {rate:>10.0} {:>7.2} {:>13.1} {:>11.3}",
            "",
            it.name,
            rate * size as f64 / 1e9,
            it.cpu_per_request.median(),
            it.cpu_per_gigabyte.median()
        );
    }
    let mut ratio = f64::NAN;
    if let Some((larder, others)) = contestants.split_first() {
        for other in others {
            let paired = larder.rate.by(&other.rate);
            println!("{:8} larder by {}: {paired:.3}", "", other.name);
            if other.name == S3S {
                ratio = paired.median();
            }
        }
    }
    println!();
    ratio
}

/// Fails unless the server at `address` refuses a request whose signature is wrong in one digit.
async fn refuses_forgery(address: SocketAddr) -> Result<()> {
    let key = keys(SIZES[0].0).swap_remove(0);
    let mut request = signer().get(&address.to_string(), &format!("/{BUCKET}/{key}"))?;
    let last = request.len() - b"0\r\n\r\n".len();
    request[last] = if request[last] == b'0' { b'1' } else { b'0' };
    let answer = Connection::open(address).await?.get(&request).await?;
    ensure!(answer.status == 403, "{address} answered {} to a wrong signature", answer.status);
    Ok(())
}
