//! Real trees, read back through the proxy by the clients that people use, in both styles of
//! addressing, cold and warm: not a byte differs, and the warm runs cost the origin none.

use anyhow::{Result, ensure};
use larder_tests::forward::Forwarder;
use larder_tests::larder::{Larder, cache, dataset, directory_origin, s3_origin};
use larder_tests::moto::Moto;
use larder_tests::tools::{self, Account, Style, run};
use larder_tests::{scaled, tree};
use std::path::Path;
use std::time::Instant;

#[derive(Clone, Copy, Debug)]
enum Reader {
    Aws,
    S5cmd,
    Boto3,
}

impl Reader {
    /// Downloads bucket `tree` into `to`.
    async fn read(self, account: &Account, scratch: &Path, to: &Path) -> Result<()> {
        std::fs::create_dir(to)?;
        let mut command = match self {
            Self::Aws => {
                let mut command = tools::client("aws", account, scratch)?;
                command.args(["s3", "sync", "--only-show-errors", "s3://tree"]).arg(to);
                command
            }
            Self::S5cmd => {
                let mut command = tools::client("s5cmd", account, scratch)?;
                let workers = ["--log", "error", "--numworkers", "16"];
                command.args(workers).args(["cp", "s3://tree/*"]).arg(format!("{}/", to.display()));
                command
            }
            Self::Boto3 => {
                let mut command = tools::client("python", account, scratch)?;
                command.arg(tools::folder("clients").join("read_all.py")).arg("tree").arg(to);
                command
            }
        };
        run(&mut command).await.map(drop)
    }
}

/// The readers that are tried. s5cmd knows virtual-hosted addressing for AWS's own hosts only.
const READERS: [(Reader, Style); 5] = [
    (Reader::Aws, Style::Path),
    (Reader::S5cmd, Style::Path),
    (Reader::Boto3, Style::Virtual),
    (Reader::Aws, Style::Virtual),
    (Reader::Boto3, Style::Path),
];

struct Trial<'a> {
    larder: &'a Larder,
    tree: &'a Path,
    files: usize,
    scratch: tempfile::TempDir,
}

impl Trial<'_> {
    async fn check(&self, reader: Reader, style: Style, warm: bool) -> Result<()> {
        let to = self.scratch.path().join("out");
        let before = self.larder.metrics().await?.origin_bytes("tree");
        let began = Instant::now();
        reader.read(&self.larder.account(style), self.scratch.path(), &to).await?;
        let took = began.elapsed().as_secs_f64();
        let fetched = self.larder.metrics().await?.origin_bytes("tree") - before;
        tree::assert_same(self.tree, &to)?;
        println!(
            "{reader:?}, {style:?} style, {}: {} files in {took:.1} s, {fetched} bytes from the \
             origin, no difference",
            if warm { "warm" } else { "cold" },
            self.files
        );
        ensure!(!warm || fetched == 0, "a warm run fetched {fetched} bytes");
        std::fs::remove_dir_all(&to)?;
        Ok(())
    }
}

fn config(origin: &str, memory: &str) -> String {
    let disk = scaled("2GiB", "6GiB");
    let rest = "freshness = \"immutable\"";
    format!(
        "[limits]\nmemory = \"768MiB\"\n{}{origin}{}",
        cache(memory, Some(disk)),
        dataset("tree", "source", "tree", rest)
    )
}

#[tokio::test]
async fn a_real_tree_in_a_folder_is_read_back_by_every_client() -> Result<()> {
    let files = scaled(2_000, 20_000);
    let origin = tempfile::tempdir()?;
    let tree = origin.path().join("tree");
    let copied = tree::copy_real(files, &tree)?;
    println!("the tree: {} files, {} bytes", copied.files, copied.bytes);
    let config = config(&directory_origin("source", origin.path()), "256MiB");
    // Cold for the first reader in each style of client; the slow tier gives every reader a cold run.
    let cold = scaled(3, READERS.len());
    let mut larder = None;
    for (index, (reader, style)) in READERS.into_iter().enumerate() {
        let fresh = index < cold;
        let node = match larder.take() {
            Some(node) if !fresh => node,
            _ => Larder::start(&config).await?,
        };
        let scratch = tempfile::tempdir()?;
        let trial = Trial { larder: &node, tree: &tree, files, scratch };
        if fresh {
            trial.check(reader, style, false).await?;
            let fetched = node.metrics().await?.origin_bytes("tree");
            ensure!(fetched == copied.bytes, "cold: {fetched} of {} bytes fetched", copied.bytes);
        }
        trial.check(reader, style, true).await?;
        larder = Some(node);
    }
    Ok(())
}

#[tokio::test]
async fn a_real_tree_at_moto_is_read_back_by_every_client() -> Result<()> {
    let files = scaled(300, 3_000);
    let local = tempfile::tempdir()?;
    let tree = local.path().join("tree");
    let copied = tree::copy_real(files, &tree)?;
    let moto = Moto::start().await?;
    moto.client().make_bucket("tree").await?;
    let account = Account {
        endpoint: moto.endpoint(),
        access_key: "ORIGIN".into(),
        secret: "origin-secret".into(),
        style: Style::Path,
    };
    let mut upload = tools::client("aws", &account, local.path())?;
    run(upload.args(["s3", "sync", "--only-show-errors"]).arg(&tree).arg("s3://tree")).await?;
    let forwarder = Forwarder::start(moto.address()).await?;
    let larder =
        Larder::start(&config(&s3_origin("source", &forwarder.endpoint()), "256MiB")).await?;
    let scratch = tempfile::tempdir()?;
    let trial = Trial { larder: &larder, tree: &tree, files, scratch };
    let (first, style) = READERS[0];
    trial.check(first, style, false).await?;
    let cold = forwarder.object_bytes();
    println!("cold: the origin sent {cold} bytes of objects for {} in the tree", copied.bytes);
    ensure!(cold == copied.bytes, "cold: {cold} bytes for {}", copied.bytes);
    for (reader, style) in READERS {
        trial.check(reader, style, true).await?;
    }
    ensure!(forwarder.object_bytes() == cold, "the warm runs fetched object bytes");
    Ok(())
}
