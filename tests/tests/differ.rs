//! The header differ: some hundreds of requests at an origin and through the proxy, cold and warm,
//! and every difference of the answers, bar the list in `src/differ/excuses.rs`.

use anyhow::{Result, ensure};
use larder_tests::differ::{Differ, Scene, Side, reads, writes};
use larder_tests::larder::{ACCESS_KEY, Larder, SECRET, cache, dataset_read_write, s3_origin};
use larder_tests::moto::Moto;
use larder_tests::versity::Versity;
use larder_tests::wire::Place;

async fn check(origin: Side, endpoint: &str, scenes: &[Scene]) -> Result<()> {
    let rest = "freshness = \"strict\"\nblock = \"64KiB\"";
    let config = format!(
        "{}{}{}",
        cache("64MiB", None),
        s3_origin("origin", endpoint),
        dataset_read_write("all", "origin", "*", rest)
    );
    let larder = Larder::start(&config).await?;
    let direct = Place::new(endpoint, "ORIGIN", "origin-secret");
    let through = Place::new(larder.endpoint(), ACCESS_KEY, SECRET);
    let mut differ = Differ::between(origin, direct, through);
    differ.play(scenes).await?;
    println!(
        "{origin:?}: {} requests, {} comparisons, {} differences",
        differ.rows,
        differ.compared,
        differ.differences.len()
    );
    for (reason, times) in &differ.excused {
        println!("  {times:5} excused: {reason}");
    }
    ensure!(differ.rows >= 150, "only {} requests", differ.rows);
    ensure!(differ.differences.is_empty(), "{}", differ.differences.join("\n"));
    Ok(())
}

#[tokio::test]
async fn reads_answer_as_at_moto() -> Result<()> {
    let moto = Moto::start().await?;
    check(Side::Moto, &moto.endpoint(), &reads::scenes()).await
}

#[tokio::test]
async fn reads_answer_as_at_versitygw() -> Result<()> {
    let versity = Versity::start().await?;
    check(Side::Versity, &versity.endpoint(), &reads::scenes()).await
}

#[tokio::test]
async fn writes_answer_as_at_moto() -> Result<()> {
    let moto = Moto::start().await?;
    check(Side::Moto, &moto.endpoint(), &writes::scenes()).await
}

#[tokio::test]
async fn writes_answer_as_at_versitygw() -> Result<()> {
    let versity = Versity::start().await?;
    check(Side::Versity, &versity.endpoint(), &writes::scenes()).await
}
