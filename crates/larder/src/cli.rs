//! The command line.
//!
//! Not here: what the commands do. Exit codes of all of them: 0 done, 1 failed, 2 usage or
//! configuration.

use clap::{Args, Parser, Subcommand, ValueEnum};
use larder_model::BucketName;
use std::path::PathBuf;

/// An S3 caching proxy for machine-learning training.
#[derive(Debug, Parser)]
#[command(name = "larder", version, propagate_version = true)]
#[command(after_help = "Example:\n  larder serve --origin ./data")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Serve),
    /// Show what a running node caches.
    #[command(
        after_help = "Example:\n  larder status --admin http://127.0.0.1:9001 --watch\n\nThe columns are explained in config/README.md."
    )]
    Status(Status),
    /// Look into an origin.
    #[command(after_help = "Example:\n  larder origin probe hangzhou --config larder.toml")]
    Origin(OriginCommand),
    /// Check or show a configuration, without starting anything.
    #[command(after_help = "Example:\n  larder config check --config larder.toml")]
    Config(ConfigCommand),
}

const SERVE_EXAMPLES: &str = "Examples:
  larder serve --origin ./data
  larder serve --origin ./data --read-write
  larder serve --config /etc/larder/larder.toml --log json
  LARDER_LISTEN__S3=0.0.0.0:9000 larder serve --config larder.toml --set limits.memory=4GiB

The environment sets any key as LARDER_SECTION__KEY; see config/README.md.";

/// `larder serve`
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) layers: LayerArgs,
    /// Serve this folder with an embedded default configuration; its sub-folders are the buckets.
    /// A folder that is new or empty gets a few sample objects.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub(crate) origin: Option<PathBuf>,
    /// Let clients write to the folder, and make and delete buckets in it.
    #[arg(long, requires = "origin", conflicts_with = "config")]
    pub(crate) read_write: bool,
    #[command(flatten)]
    pub(crate) log: Log,
}

/// `larder config`
#[derive(Debug, Args)]
pub(crate) struct ConfigCommand {
    #[command(subcommand)]
    pub(crate) action: ConfigAction,
}

/// What to do with a configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Check everything that `serve` would check, files included; print every problem.
    #[command(after_help = "Example:\n  larder config check --config larder.toml")]
    Check(LayerArgs),
    /// Print the effective configuration as TOML, secrets by their reference.
    #[command(after_help = "Example:\n  larder config show --config larder.toml")]
    Show(LayerArgs),
}

/// `larder origin`
#[derive(Debug, Args)]
pub(crate) struct OriginCommand {
    #[command(subcommand)]
    pub(crate) action: OriginAction,
}

/// What to do with an origin.
#[derive(Debug, Subcommand)]
pub(crate) enum OriginAction {
    /// Find out what an endpoint supports; print the answers and the lines to configure.
    #[command(after_help = PROBE_EXAMPLES)]
    Probe(Box<Probe>),
}

const PROBE_EXAMPLES: &str = "Examples:
  larder origin probe hangzhou --config larder.toml --bucket train-data
  larder origin probe hangzhou --config larder.toml --bucket scratch --write --json

Exit codes: 0 the origin can be used, 1 it cannot, 2 usage or configuration.";

/// `larder origin probe`
#[derive(Debug, Args)]
pub(crate) struct Probe {
    /// The origin: NAME of a section [origin.NAME].
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The bucket to ask about; the first one that the keys may list without.
    #[arg(long, value_name = "BUCKET", value_parser = bucket)]
    pub(crate) bucket: Option<BucketName>,
    /// Find out about writes too: put an object larder-probe-… into the bucket, and delete it.
    #[arg(long)]
    pub(crate) write: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}

/// Where a configuration comes from.
#[derive(Debug, Args)]
pub(crate) struct LayerArgs {
    /// The configuration file.
    #[arg(long, value_name = "FILE", env = "LARDER_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Override the address of the S3 listener (`listen.s3`); port 0 lets the kernel choose.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: Option<String>,
    /// Override the address of the admin listener (`listen.admin`).
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen_admin: Option<String>,
    /// Override any key; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) set: Vec<(String, String)>,
    /// Serve requests that are not signed. Only where every listener is on loopback.
    #[arg(long)]
    pub(crate) insecure_anonymous: bool,
}

/// What to log, to stderr.
#[derive(Clone, Debug, Args)]
pub(crate) struct Log {
    /// How log lines look.
    #[arg(long = "log", value_name = "FORMAT", default_value = "text")]
    pub(crate) format: LogFormat,
    /// error, warn, info, debug or trace; or directives such as `info,larder_engine=debug`.
    #[arg(long = "log-level", value_name = "LEVEL", default_value = "info")]
    pub(crate) level: String,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// `larder status`
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The node's admin listener.
    #[arg(long, value_name = "URL", env = "LARDER_ADMIN", default_value = "http://127.0.0.1:9001")]
    pub(crate) admin: String,
    /// The token of the admin listener, if it has one.
    #[arg(long, env = "LARDER_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Show it again every two seconds.
    #[arg(long)]
    pub(crate) watch: bool,
    /// Print the node's JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

fn bucket(text: &str) -> Result<BucketName, String> {
    BucketName::new(text).map_err(|error| error.to_string())
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| key.contains('.'));
    let (key, value) = pair.ok_or("write SECTION.KEY=VALUE, such as limits.memory=4GiB")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::{CommandFactory, Parser};

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        fn visit(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{}", command.get_name());
            command.get_subcommands().for_each(visit);
        }
        visit(&Cli::command());
    }

    #[test]
    fn usage_errors_are_exit_code_2() {
        for line in [
            "larder",
            "larder serve --origin a --config b",
            "larder serve --config a --read-write",
            "larder serve --read-write",
            "larder serve --set memory",
            "larder serve --log xml",
            "larder bake",
            "larder origin probe",
            "larder origin probe o --bucket /",
        ] {
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
