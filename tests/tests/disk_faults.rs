//! What happens to the cache folder under a running node, and what a node finds in it when it starts,
//! costs no client an error and no byte: it is counted, or refused by a message that says what to do.

use anyhow::{Context, Result, ensure};
use larder_tests::larder::{Larder, bare, dataset, directory_origin};
use larder_tests::oracle::Oracle;
use larder_tests::poll;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

const OBJECTS: usize = 40;
const SIZE: u64 = 700_000;
/// The store looks after its folder every ten seconds.
const NOTICED: Duration = Duration::from_secs(60);

fn key(index: usize) -> String {
    format!("shard/{index:03}")
}

/// An origin with `OBJECTS` objects to begin with and as many for later.
fn origin() -> Result<tempfile::TempDir> {
    let dir = tempfile::tempdir()?;
    std::fs::create_dir_all(dir.path().join("data/shard"))?;
    for index in 0..2 * OBJECTS {
        let path = dir.path().join("data").join(key(index));
        std::fs::write(path, Oracle::of(&key(index)).body(1, SIZE))?;
    }
    Ok(dir)
}

/// With hardly any memory, so that reads go to the SSD.
fn config(origin: &Path, cache: &Path) -> String {
    format!(
        "[cache]\nmemory = \"8MiB\"\ndisk = {{ path = \"{}\", capacity = \"300MiB\" }}\n{}{}",
        cache.display(),
        directory_origin("files", origin),
        dataset("data", "files", "data", "freshness = \"immutable\"")
    )
}

async fn read(larder: &Larder, indexes: std::ops::Range<usize>) -> Result<()> {
    let client = larder.client();
    for index in indexes {
        let reply = client.get("data", &key(index)).await?.expect(200)?;
        ensure!(reply.body.len() as u64 == SIZE, "object {index}: {} bytes", reply.body.len());
        Oracle::of(&key(index)).check(0, &reply.body)?;
    }
    Ok(())
}

/// Reads the first objects, and waits until all of them are on the SSD.
async fn warm(larder: &Larder) -> Result<()> {
    read(larder, 0..OBJECTS).await?;
    poll::until("all blocks on the SSD", Duration::from_secs(30), async || {
        let metrics = larder.metrics().await?;
        let bytes = metrics.sum("larder_cached_bytes", &[("dataset", "data"), ("tier", "disk")]);
        Ok((bytes >= (OBJECTS as u64 * SIZE) as f64).then_some(()))
    })
    .await
}

async fn errors(larder: &Larder, cause: &str) -> Result<f64> {
    Ok(larder.metrics().await?.sum("larder_store_errors_total", &[("cause", cause)]))
}

async fn counted(larder: &Larder, cause: &str) -> Result<()> {
    poll::until(&format!("{cause} is counted"), NOTICED, async || {
        Ok((errors(larder, cause).await? > 0.0).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_cache_folder_that_is_removed_while_serving_costs_nothing_but_a_cold_restart()
-> Result<()> {
    let (files, home) = (origin()?, tempfile::tempdir()?);
    let cache = home.path().join("cache");
    let mut larder = Larder::start(&config(files.path(), &cache)).await?;
    warm(&larder).await?;
    std::fs::remove_dir_all(&cache)?;
    read(&larder, 0..2 * OBJECTS).await?;
    counted(&larder, "gone").await?;
    read(&larder, 0..2 * OBJECTS).await?;
    ensure!(errors(&larder, "corrupt").await? == 0.0);
    let status = larder.stop().await?;
    ensure!(status.success(), "SIGTERM ended it with {status}");
    // It is made anew, and is one that a start after that takes for its own.
    for _ in 0..2 {
        larder.start_again().await?;
        read(&larder, 0..OBJECTS).await?;
        larder.stop().await?;
    }
    Ok(())
}

/// An ext4 of its own in a file; unmounted when dropped. Needs root.
struct Ext4 {
    home: tempfile::TempDir,
}

impl Ext4 {
    fn mount() -> Result<Option<Self>> {
        let home = tempfile::tempdir()?;
        let image = home.path().join("image");
        std::fs::File::create(&image)?.set_len(512 << 20)?;
        let mounted = Self { home };
        std::fs::create_dir(mounted.path())?;
        let made = Command::new("mkfs.ext4").arg("-q").arg(&image).output();
        if !made.is_ok_and(|output| output.status.success()) {
            return Ok(None);
        }
        let output =
            Command::new("mount").args(["-o", "loop"]).arg(image).arg(mounted.path()).output();
        Ok(output.is_ok_and(|output| output.status.success()).then_some(mounted))
    }

    fn path(&self) -> std::path::PathBuf {
        self.home.path().join("mounted")
    }

    /// As the kernel does by itself when the file system finds itself damaged.
    fn make_read_only(&self) -> Result<()> {
        let output =
            Command::new("mount").args(["-o", "remount,abort"]).arg(self.path()).output()?;
        ensure!(output.status.success(), "{output:?}");
        Ok(())
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

#[tokio::test]
async fn a_file_system_that_turns_read_only_is_read_and_nothing_is_written() -> Result<()> {
    let Some(ext4) = Ext4::mount()? else {
        ensure!(std::env::var_os("CI").is_none(), "CI must be able to mount ext4 on a loop device");
        println!("skipped: ext4 cannot be mounted on a loop device (not root?)");
        return Ok(());
    };
    let files = origin()?;
    let larder = Larder::start(&config(files.path(), &ext4.path().join("cache"))).await?;
    warm(&larder).await?;
    let fetched = larder.metrics().await?.origin_bytes("data");
    ext4.make_read_only()?;
    // New objects are served, and cannot be kept.
    read(&larder, OBJECTS..2 * OBJECTS).await?;
    counted(&larder, "no_space").await?;
    let metrics = larder.metrics().await?;
    ensure!(metrics.sum("larder_disk_state", &[]) == 1.0, "the SSD should be unstable");
    let fetched_new = metrics.origin_bytes("data") - fetched;
    ensure!(fetched_new >= OBJECTS as u64 * SIZE, "{fetched_new} bytes of new objects");
    // What was kept before is read from it.
    let before = metrics.served_bytes("data", "disk");
    read(&larder, 0..OBJECTS).await?;
    let from_disk = larder.metrics().await?.served_bytes("data", "disk") - before;
    // 8 MiB of memory hold eleven of them at most.
    ensure!(from_disk >= (OBJECTS as u64 - 11) * SIZE, "{from_disk} bytes from the SSD");
    Ok(())
}

/// Starts a node that should not start; tells how it ended.
async fn refused(dir: &Path) -> Result<Output> {
    let mut command = bare(dir)?;
    command.args(["serve", "--config", "larder.toml"]).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(30), command.output());
    output.await.context("the node started, or hangs")?.context("larder serve")
}

fn says(output: &Output, words: &[&str]) -> Result<()> {
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{:?}: {text}", output.status);
    for word in words {
        ensure!(text.contains(word), "{word:?} is not in {text:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_folder_that_is_in_use_foreign_or_of_another_format_is_refused_and_left_alone()
-> Result<()> {
    let (files, home) = (origin()?, tempfile::tempdir()?);
    let cache = home.path().join("cache");
    let folder = cache.to_str().context("a path of letters")?;
    let mut larder = Larder::start(&config(files.path(), &cache)).await?;
    warm(&larder).await?;
    says(&refused(larder.dir()).await?, &[folder, "another process is using it"])?;
    read(&larder, 0..OBJECTS).await?;
    larder.stop().await?;

    std::fs::write(cache.join("format"), "larder cache 0\n")?;
    let files_before = std::fs::read_dir(&cache)?.count();
    says(&refused(larder.dir()).await?, &[folder, "larder cache 0", "empty the directory"])?;
    std::fs::remove_file(cache.join("format"))?;
    says(&refused(larder.dir()).await?, &[folder, "is not a cache of Larder"])?;
    ensure!(
        std::fs::read_dir(&cache)?.count() == files_before - 1,
        "something was removed or made"
    );
    Ok(())
}

#[tokio::test]
async fn a_reserved_cache_takes_its_space_at_the_start_or_says_what_is_missing() -> Result<()> {
    let (files, home) = (origin()?, tempfile::tempdir()?);
    let cache = home.path().join("cache");
    let with = |capacity: &str| {
        let config = config(files.path(), &cache);
        config
            .replace("capacity = \"300MiB\"", &format!("reserve = true, capacity = \"{capacity}\""))
    };
    let mut larder = Larder::start(&with("300MiB")).await?;
    let pool = cache.join("pools/@shared");
    let used = || -> Result<u64> {
        use std::os::unix::fs::MetadataExt;
        let files = std::fs::read_dir(&pool)?.flatten();
        Ok(files.filter_map(|file| file.metadata().ok()).map(|meta| meta.blocks() * 512).sum())
    };
    ensure!(used()? > 200 << 20, "only {} bytes are reserved", used()?);
    warm(&larder).await?;
    larder.stop().await?;
    let path = larder.dir().join("larder.toml");
    let text = std::fs::read_to_string(&path)?;
    std::fs::write(&path, text.replace("300MiB", "900TiB"))?;
    says(&refused(larder.dir()).await?, &["@shared", "bytes are missing", "cache.disk.reserve"])
}
