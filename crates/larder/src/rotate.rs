//! Secrets that change while the node runs: files are read again, and whoever uses one gets the new
//! text.
//!
//! Invariant: a file that cannot be read, or is empty, changes nothing: the old secret stays in use
//! and the log says so, once for each failure, without the text.

use crate::config::{Secret, SecretText, read_file};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the files are looked at. They are read, not compared by time: secrets are short, and a
/// Kubernetes secret changes behind a symbolic link.
const PERIOD: Duration = Duration::from_secs(1);

/// Every secret of the configuration that comes from a file, as last read.
#[derive(Debug)]
pub(crate) struct Watched {
    files: BTreeMap<PathBuf, SecretText>,
    /// Files whose last reading failed, so that each failure is told once.
    failing: BTreeMap<PathBuf, String>,
}

impl Watched {
    /// The files of these secrets.
    pub(crate) fn new<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Self {
        let with_file = |secret: &Secret| Some((secret.file.clone()?, secret.text.clone()));
        Self {
            files: secrets.into_iter().filter_map(with_file).collect(),
            failing: BTreeMap::new(),
        }
    }

    /// The secret's text as last read.
    pub(crate) fn text(&self, secret: &Secret) -> SecretText {
        let current = secret.file.as_ref().and_then(|file| self.files.get(file));
        current.unwrap_or(&secret.text).clone()
    }

    /// Reads every file again. Whether any text changed.
    fn reread(&mut self) -> bool {
        let mut changed = false;
        for (file, text) in &mut self.files {
            match read_file(file) {
                Ok(new) => {
                    self.failing.remove(file);
                    if new != *text {
                        tracing::info!(file = %file.display(), "a secret has changed; using it");
                        *text = new;
                        changed = true;
                    }
                }
                Err(reason) => {
                    if self.failing.get(file) != Some(&reason) {
                        tracing::warn!(%reason, "a secret cannot be read again; the old one stays");
                        self.failing.insert(file.clone(), reason);
                    }
                }
            }
        }
        changed
    }

    /// The files that are watched.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path)
    }

    /// Looks at the files for ever and calls `apply` after each change. Ends when it is dropped.
    pub(crate) async fn run(mut self, apply: impl Fn(&Self)) {
        if self.files().next().is_none() {
            return std::future::pending().await;
        }
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let reading = tokio::task::spawn_blocking(move || {
                let changed = self.reread();
                (self, changed)
            });
            // A cancelled or panicked reading has taken the state with it: nothing left to watch.
            let Ok((watched, changed)) = reading.await else { return };
            self = watched;
            if changed {
                apply(&self);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Watched;
    use crate::config::{Secret, SecretText};

    fn secret(file: std::path::PathBuf, text: &str) -> Secret {
        let reference = crate::config::SecretRef::File(file.clone());
        Secret { reference, file: Some(file), text: SecretText::new(text) }
    }

    #[test]
    fn a_changed_file_is_noticed_and_a_broken_one_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s");
        std::fs::write(&file, "first").unwrap();
        let secret = secret(file.clone(), "first");
        let mut watched = Watched::new([&secret]);
        assert!(!watched.reread());
        std::fs::write(&file, "second\n").unwrap();
        assert!(watched.reread());
        assert_eq!(watched.text(&secret).expose(), "second");
        std::fs::remove_file(&file).unwrap();
        assert!(!watched.reread());
        assert_eq!(watched.text(&secret).expose(), "second");
        assert_eq!(watched.failing.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_watcher_tells_of_each_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s");
        std::fs::write(&file, "first").unwrap();
        let secret = secret(file.clone(), "first");
        let (tell, mut told) = tokio::sync::mpsc::channel(1);
        let watched = Watched::new([&secret]);
        let watching = tokio::spawn(async move {
            let apply = |watched: &Watched| {
                let _full_means_already_told = tell.try_send(watched.text(&secret));
            };
            watched.run(apply).await;
        });
        std::fs::write(&file, "second").unwrap();
        assert_eq!(told.recv().await.unwrap().expose(), "second");
        watching.abort();
    }
}
