//! Where a command's configuration comes from: the file, the environment and the flags.
//!
//! Not here: reading any of it as configuration. The environment is read once, here.

use crate::cli::{LayerArgs, Serve};
use crate::config::{Config, Layers, Problem, Problems};
use crate::embedded::embed;
use anyhow::Context as _;
use larder_model::Access;
use std::path::{Path, PathBuf};

/// The configuration of `larder serve`.
///
/// # Errors
///
/// [`Problems`] for whatever is wrong with it; anything else when the sample folder cannot be made.
pub(crate) fn serve_config(serve: &Serve) -> anyhow::Result<Config> {
    let Some(dir) = &serve.origin else { return file_config(&serve.layers) };
    let mut layers = layers(&serve.layers);
    let access = if serve.read_write { Access::ReadWrite } else { Access::Read };
    embed(dir, access, serve.layers.insecure_anonymous, &mut layers)?;
    let base = std::env::current_dir().context("finding the current folder")?;
    Ok(Config::read(&layers, &base, serve.layers.insecure_anonymous)?)
}

/// The configuration of a file, or of the environment and flags alone.
///
/// # Errors
///
/// [`Problems`], also for a file that cannot be read.
pub(crate) fn file_config(args: &LayerArgs) -> anyhow::Result<Config> {
    let mut layers = layers(args);
    let base = match &args.config {
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|error| {
                usage(format!("cannot read the configuration {}: {error}", file.display()))
            })?;
            layers.text = text;
            layers.file_name = file.display().to_string();
            folder_of(file)
        }
        None if layers.says_something() => PathBuf::from("."),
        None => {
            let advice =
                "no configuration; give --config FILE, or serve --origin DIR for a default";
            return Err(usage(advice.to_owned()).into());
        }
    };
    let base = std::path::absolute(base).context("finding the configuration's folder")?;
    Ok(Config::read(&layers, &base, args.insecure_anonymous)?)
}

fn layers(args: &LayerArgs) -> Layers {
    let lossless = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let listen = args.listen.iter().map(|address| ("listen.s3".to_owned(), address.clone()));
    let admin =
        args.listen_admin.iter().map(|address| ("listen.admin".to_owned(), address.clone()));
    Layers {
        env: std::env::vars_os().filter_map(lossless).collect(),
        flags: args.set.iter().cloned().chain(listen).chain(admin).collect(),
        ..Layers::default()
    }
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn usage(message: String) -> Problems {
    Problems(vec![Problem::new(&[], message)])
}
