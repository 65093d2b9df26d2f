//! Cold GETs from an origin far away: what Larder adds to the first byte, and what its parallel fills gain on the last.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::net::TcpListener;

use crate::client::{Answer, Connection};
use crate::content::Content;
use crate::forwarder::{Forwarder, Link};
use crate::larder::{Larder, Setting, signer};
use crate::load::BUCKET;
use crate::process::start_own;
use crate::report::{Bar, Series, Verdicts, size_name};
use crate::signer::{Signer, unsigned};

/// The origin's distance in this bench.
pub const LINK: Link =
    Link { round_trip: Duration::from_millis(30), bytes_per_second: 100_000_000 };
const SMALL: u64 = 100_000;
const LARGE: u64 = 512 << 20;

/// One way to the objects: directly through the forwarder, or through Larder.
struct Way {
    name: &'static str,
    address: SocketAddr,
    signer: Option<Signer>,
    connection: Connection,
}

impl Way {
    /// The connection is used once, so that it is warm, behind it too.
    async fn open(name: &'static str, address: SocketAddr, signer: Option<Signer>) -> Result<Self> {
        let connection = Connection::open(address).await?;
        let mut way = Self { name, address, signer, connection };
        way.get(&format!("{SMALL}/warm-{name}"), true).await?;
        Ok(way)
    }

    async fn get(&mut self, key: &str, check: bool) -> Result<Answer> {
        let content = Content::of(key).with_context(|| format!("{key} names no size"))?;
        let (host, path) = (self.address.to_string(), format!("/{BUCKET}/{key}"));
        let request = match &self.signer {
            Some(signer) => signer.get(&host, &path)?,
            None => unsigned(&host, &path),
        };
        let answer = self.connection.read(&request, check.then_some(content)).await;
        let answer = answer.with_context(|| format!("GET {key} by way of {}", self.name))?;
        ensure!(
            answer.status == 200,
            "GET {key} by way of {} was answered {}",
            self.name,
            answer.status
        );
        ensure!(answer.body == content.size_bytes(), "GET {key} by way of {} is short", self.name);
        Ok(answer)
    }
}

/// Measures `rounds` of each, prints, and tells which bars were met. Files go to `dir`.
pub async fn run(rounds: usize, dir: &Path) -> Result<Verdicts> {
    let (_origin, origin) = start_own("bare-hyper", &["--computed".into()], dir).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let forwarder = Forwarder::start(listener, origin, LINK)?;
    let setting = Setting { freshness: "strict", limit: "2GiB", memory: "1GiB", disk: None };
    let larder = Larder::start(forwarder.address(), &setting, dir).await?;
    println!(
        "origin behind {:?} and {} MB/s a connection; larder is process {}\n",
        LINK.round_trip,
        LINK.bytes_per_second / 1_000_000,
        larder.server.pid()
    );
    let mut direct = Way::open("direct", forwarder.address(), None).await?;
    let mut through = Way::open("larder", larder.address, Some(signer())).await?;
    // What is measured below is only worth something if the bytes are right; this also warms the way to the origin.
    through.get(&format!("{LARGE}/checked"), true).await?;

    let mut verdicts = Verdicts::default();
    small(rounds * 3, &forwarder, &mut direct, &mut through, &mut verdicts).await?;
    large(rounds, &larder, &mut direct, &mut through, &mut verdicts).await?;
    let counts = forwarder.counts();
    ensure!(counts.unreadable == 0, "{} connections were not HTTP/1.1", counts.unreadable);
    println!(
        "the forwarder saw {} connections, {} requests, {:.1} GB\n",
        counts.connections,
        counts.requests,
        counts.bytes_received as f64 / 1e9
    );
    Ok(verdicts)
}

async fn small(
    rounds: usize,
    forwarder: &Forwarder,
    direct: &mut Way,
    through: &mut Way,
    verdicts: &mut Verdicts,
) -> Result<()> {
    let (mut near, mut far, mut asked) = <(Series, Series, Series)>::default();
    for round in 0..rounds {
        far.push(milliseconds(
            direct.get(&format!("{SMALL}/direct-{round}"), false).await?.first_byte,
        ));
        let key = format!("{SMALL}/cold-{round}");
        near.push(milliseconds(through.get(&key, false).await?.first_byte));
        asked.push(forwarder.requests_for(&key).len() as f64);
    }
    let name = size_name(SMALL);
    verdict_on_first_byte(&name, &near, &far, verdicts);
    println!("  origin requests for one {asked:.0}\n");
    // The furthest from one in any round, so that neither two requests nor none can hide behind a median.
    let furthest = (asked.max() - 1.0).max(1.0 - asked.min());
    let what = format!("cold {name} GET, origin requests other than one");
    verdicts.hold(&what, furthest, Bar::AtMost, 0.0);
    Ok(())
}

async fn large(
    rounds: usize,
    larder: &Larder,
    direct: &mut Way,
    through: &mut Way,
    verdicts: &mut Verdicts,
) -> Result<()> {
    let (mut near, mut far) = <(Series, Series)>::default();
    let (mut near_rate, mut far_rate, mut cpu) = <(Series, Series, Series)>::default();
    for round in 0..rounds {
        let answer = direct.get(&format!("{LARGE}/direct-{round}"), false).await?;
        far.push(milliseconds(answer.first_byte));
        far_rate.push(LARGE as f64 / 1e6 / answer.whole.as_secs_f64());
        let before = larder.server.cpu_seconds()?;
        let answer = through.get(&format!("{LARGE}/cold-{round}"), false).await?;
        cpu.push((larder.server.cpu_seconds()? - before) * 1e9 / LARGE as f64);
        near.push(milliseconds(answer.first_byte));
        near_rate.push(LARGE as f64 / 1e6 / answer.whole.as_secs_f64());
    }
    let name = size_name(LARGE);
    verdict_on_first_byte(&name, &near, &far, verdicts);
    let ratio = near_rate.by(&far_rate);
    println!("  directly        {far_rate:.1} MB/s");
    println!("  through larder  {near_rate:.1} MB/s, CPU {:.3} s/GB", cpu.median());
    println!("  ratio           {ratio:.2}\n");
    let what = format!("cold {name} GET, larder by a direct single connection");
    verdicts.hold(&what, ratio.median(), Bar::AtLeast, 4.0);
    Ok(())
}

fn verdict_on_first_byte(name: &str, near: &Series, far: &Series, verdicts: &mut Verdicts) {
    let added = near.less(far);
    println!("cold {name} GET");
    println!("  first byte directly        {far:.2} ms");
    println!("  first byte through larder  {near:.2} ms");
    println!("  added                      {added:.2} ms");
    let what = format!("cold {name} GET, milliseconds added to the first byte");
    verdicts.hold(&what, added.median(), Bar::AtMost, 2.0);
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
