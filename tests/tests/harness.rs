//! The harness itself: what the other tests conclude from the forwarder, moto and the clients holds
//! only if these count and fail as they say.

use anyhow::{Result, ensure};
use http::Method;
use larder_tests::client::Ask;
use larder_tests::forward::{Fault, Forwarder};
use larder_tests::moto::Moto;
use larder_tests::oracle::Oracle;
use larder_tests::tools::{self, Account, Style, run};
use larder_tests::versity::Versity;
use larder_tests::{client::Client, tree};

const SIZE: u64 = 1_000_000;

#[tokio::test]
async fn the_forwarder_counts_bytes_and_requests_and_fails_on_demand() -> Result<()> {
    let moto = Moto::start().await?;
    moto.client().make_bucket("data").await?;
    let forwarder = Forwarder::start(moto.address()).await?;
    let client = Client::new(&forwarder.endpoint(), "ORIGIN", "origin-secret");
    client.put("data", "a b", Oracle::of("k").body(3, SIZE)).await?;
    forwarder.forget();
    let reply = client.get("data", "a b").await?.expect(200)?;
    ensure!(Oracle::of("k").check(0, &reply.body)? == 3);
    let ask = Ask::object(Method::GET, "data", "a b").header("range", "bytes=10-109");
    let reply = client.send(&ask).await?.expect(206)?;
    ensure!(Oracle::of("k").check(10, &reply.body)? == 3);
    let seen = forwarder.seen_of("data", "a%20b");
    ensure!(seen.len() == 2 && seen[0].bytes() == SIZE && seen[1].bytes() == 100, "{seen:?}");
    ensure!(seen[1].headers.contains_key("range"));
    ensure!(forwarder.object_bytes() == SIZE + 100);
    client.send(&Ask::target(Method::GET, "/data").query("list-type", "2")).await?.expect(200)?;
    ensure!(forwarder.object_bytes() == SIZE + 100, "a listing was counted");

    forwarder.fail(Fault::Cut(1_000));
    ensure!(client.get("data", "a b").await.is_err(), "a cut body came through");
    forwarder.fail(Fault::Gone);
    ensure!(client.get("data", "a b").await.is_err(), "an origin that is gone answered");
    forwarder.fail(Fault::None);
    client.get("data", "a b").await?.expect(200)?;
    Ok(())
}

#[tokio::test]
async fn the_foreign_clients_read_a_real_tree_from_moto_and_a_difference_is_noticed() -> Result<()>
{
    let dir = tempfile::tempdir()?;
    let tree = dir.path().join("tree");
    let copied = tree::copy_real(30, &tree)?;
    ensure!(copied.files == 30 && copied.bytes > 0, "{copied:?}");
    let moto = Moto::start().await?;
    moto.client().make_bucket("tree").await?;
    let account = Account {
        endpoint: moto.endpoint(),
        access_key: "ORIGIN".into(),
        secret: "origin-secret".into(),
        style: Style::Path,
    };
    let mut upload = tools::client("aws", &account, dir.path())?;
    run(upload.args(["s3", "sync", "--only-show-errors"]).arg(&tree).arg("s3://tree")).await?;
    let out = dir.path().join("out");
    let mut s5cmd = tools::client("s5cmd", &account, dir.path())?;
    run(s5cmd.args(["--log", "error", "cp", "s3://tree/*"]).arg(format!("{}/", out.display())))
        .await?;
    tree::assert_same(&tree, &out)?;
    let again = dir.path().join("again");
    std::fs::create_dir(&again)?;
    let mut boto3 = tools::client("python", &account, dir.path())?;
    let script = tools::folder("clients").join("read_all.py");
    let said = run(boto3.arg(script).arg("tree").arg(&again)).await?;
    ensure!(said.trim() == format!("30 {}", copied.bytes), "{said}");
    tree::assert_same(&tree, &again)?;
    std::fs::write(again.join("one-more"), "x")?;
    ensure!(tree::assert_same(&tree, &again).is_err());
    Ok(())
}

#[tokio::test]
async fn the_second_origin_keeps_versions_and_checks_signatures() -> Result<()> {
    let versity = Versity::start().await?;
    let client = versity.client();
    client.make_bucket("data").await?;
    let on = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    client.send(&Ask::target(Method::PUT, "/data?versioning=").body(on)).await?.expect(200)?;
    let first = client.put("data", "a b", "one").await?;
    client.put("data", "a b", "two").await?;
    ensure!(client.get("data", "a b").await?.expect(200)?.text() == "two");
    let version = first.header("x-amz-version-id");
    let old = Ask::object(Method::GET, "data", "a b").query("versionId", version);
    ensure!(client.send(&old).await?.expect(200)?.text() == "one");
    let stranger = Client::new(&versity.endpoint(), "ORIGIN", "another-secret");
    let refused = stranger.get("data", "a b").await?.expect(403)?;
    ensure!(refused.text().contains("SignatureDoesNotMatch"), "{}", refused.text());
    Ok(())
}
