//! The embedded default of `larder serve --origin DIR`: a configuration over one folder, a key pair
//! made up for this run, and a few sample objects when the folder is new.
//!
//! Invariant: nothing is written to a folder that holds anything, but by clients where they may.

use crate::config::{Layers, Secret, SecretRef};
use anyhow::Context as _;
use larder_model::Access;
use rand::Rng as _;
use rand::distr::Alphanumeric;
use std::path::Path;

/// The variable by which the configuration text refers to the secret that was made up.
const SECRET_VARIABLE: &str = "LARDER_GENERATED_SECRET";
const SAMPLE_BYTES: usize = 1 << 20;

/// The bucket of the sample objects.
pub(crate) const SAMPLE_BUCKET: &str = "samples";

/// Creates the folder if need be, and turns the layers into the embedded default under whatever
/// environment and flags say. `access` is what clients may do with what is in the folder.
///
/// # Errors
///
/// When the folder cannot be read or written.
pub(crate) fn embed(
    dir: &Path,
    access: Access,
    anonymous: bool,
    layers: &mut Layers,
) -> anyhow::Result<()> {
    populate(dir).with_context(|| format!("preparing the origin folder {}", dir.display()))?;
    let path = std::path::absolute(dir)?;
    let path = path.to_str().context("the origin folder's name is not UTF-8")?;
    layers.file_name = "embedded default".to_owned();
    layers.text = format!(
        "[origin.local]\nkind = \"directory\"\npath = {}\n\
         [dataset.local]\norigin = \"local\"\nbucket = \"*\"\naccess = \"{}\"\n",
        toml::Value::from(path),
        match access {
            Access::Read => "read",
            Access::ReadWrite => "read-write",
        }
    );
    let keys_given = layers.env.keys().any(|name| name.starts_with("LARDER_KEY__"));
    if !anonymous && !keys_given {
        let id = format!("LARDER{}", drawn(14).to_ascii_uppercase());
        layers.env.insert(SECRET_VARIABLE.to_owned(), drawn(40));
        layers.text += &format!(
            "[key.{id}]\nsecret = \"env:{SECRET_VARIABLE}\"\nallow = [\"local:read-write\"]\n"
        );
    }
    Ok(())
}

/// Whether the secret was made up here.
pub(crate) fn is_generated(secret: &Secret) -> bool {
    secret.reference == SecretRef::Env(SECRET_VARIABLE.to_owned())
}

/// `len` letters and digits that nobody can guess.
fn drawn(len: usize) -> String {
    rand::rng().sample_iter(Alphanumeric).take(len).map(char::from).collect()
}

fn populate(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    if std::fs::read_dir(dir)?.next().is_some() {
        return Ok(());
    }
    let bucket = dir.join(SAMPLE_BUCKET);
    std::fs::create_dir_all(bucket.join("tables"))?;
    std::fs::write(bucket.join("hello.txt"), "Hello from Larder.\n")?;
    std::fs::write(bucket.join("about.json"), "{\"name\": \"larder\", \"kind\": \"sample\"}\n")?;
    std::fs::write(bucket.join("noise.bin"), noise())?;
    std::fs::write(bucket.join("tables/steps.csv"), "step,loss\n1,2.31\n2,1.87\n3,1.52\n")
}

/// The same bytes each time, and none that compress (a linear congruential generator with the
/// constants of Knuth's MMIX).
fn noise() -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(SAMPLE_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::{SAMPLE_BYTES, embed};
    use crate::config::{Config, Layers};
    use larder_model::Access;

    #[test]
    fn clients_write_only_where_it_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        for access in [Access::Read, Access::ReadWrite] {
            let mut layers = Layers::default();
            embed(dir.path(), access, false, &mut layers).unwrap();
            let config = Config::read(&layers, dir.path(), false).unwrap();
            assert_eq!(config.datasets[0].access, access);
        }
    }

    #[test]
    fn a_new_folder_gets_samples_and_a_used_one_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("new");
        embed(&new, Access::Read, false, &mut Layers::default()).unwrap();
        assert_eq!(std::fs::read(new.join("samples/noise.bin")).unwrap().len(), SAMPLE_BYTES);
        assert!(new.join("samples/tables/steps.csv").is_file());
        let used = dir.path().join("used");
        std::fs::create_dir_all(used.join("mine")).unwrap();
        embed(&used, Access::ReadWrite, false, &mut Layers::default()).unwrap();
        assert_eq!(std::fs::read_dir(&used).unwrap().count(), 1);
    }

    #[test]
    fn the_embedded_default_is_a_good_configuration_with_a_new_key_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let read = || {
            let mut layers = Layers::default();
            embed(&dir.path().join("quo\"te"), Access::Read, false, &mut layers).unwrap();
            Config::read(&layers, dir.path(), false).unwrap()
        };
        let (first, second) = (read(), read());
        assert_eq!(first.keys[0].secret.text.expose().len(), 40);
        assert_ne!(first.keys[0].secret.text, second.keys[0].secret.text);
        assert_ne!(first.keys[0].id, second.keys[0].id);
        assert!(!format!("{first:?}").contains(first.keys[0].secret.text.expose()));
    }

    #[test]
    fn anonymous_nodes_and_nodes_with_keys_get_none_made_up() {
        let dir = tempfile::tempdir().unwrap();
        let mut layers = Layers::default();
        embed(&dir.path().join("d"), Access::Read, true, &mut layers).unwrap();
        assert!(Config::read(&layers, dir.path(), true).unwrap().keys.is_empty());
        let mut layers = Layers::default();
        layers.env.insert("S".into(), "a-secret-of-mine".into());
        layers.env.insert("LARDER_KEY__MINE__SECRET".into(), "env:S".into());
        layers.env.insert("LARDER_KEY__MINE__ALLOW".into(), "[local:read]".into());
        embed(&dir.path().join("d"), Access::Read, false, &mut layers).unwrap();
        let config = Config::read(&layers, dir.path(), false).unwrap();
        assert_eq!(config.keys.len(), 1);
        assert_eq!(config.keys[0].id, "MINE");
    }
}
