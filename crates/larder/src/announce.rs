//! The lines that `larder serve` prints to stdout once it listens; people and scripts read them.
//!
//! Invariant: a secret is printed only if this process made it up for this run.

use crate::config::Config;
use crate::embedded::{SAMPLE_BUCKET, is_generated};
use crate::node::Addresses;
use std::fmt::Write as _;
use std::io::Write as _;

/// Prints where the node listens and how to reach it.
///
/// # Errors
///
/// When stdout cannot be written.
pub(crate) fn announce(config: &Config, addresses: Addresses) -> std::io::Result<()> {
    let text = lines(config, addresses);
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn lines(config: &Config, Addresses { s3, admin }: Addresses) -> String {
    let scheme = if config.listen.tls.is_some() { "https" } else { "http" };
    let endpoint = format!("{scheme}://{s3}");
    let mut text = format!("s3 endpoint: {endpoint}\nadmin: http://{admin}\n");
    let mut line = |line: String| {
        let _writing_to_a_string_cannot_fail = writeln!(text, "{line}");
    };
    if config.anonymous && config.keys.is_empty() {
        line("access key: none needed (--insecure-anonymous)".to_owned());
        line(format!("try: aws s3 ls --no-sign-request --endpoint-url {endpoint}"));
    }
    for key in &config.keys {
        line(format!("access key: {}", key.id));
        if is_generated(&key.secret) {
            let secret = key.secret.text.expose();
            line(format!("secret key: {secret}"));
            line(format!(
                "try: AWS_ACCESS_KEY_ID={} AWS_SECRET_ACCESS_KEY={secret} \
                 AWS_DEFAULT_REGION=us-east-1 aws s3 ls s3://{SAMPLE_BUCKET}/ --endpoint-url {endpoint}",
                key.id
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::lines;
    use crate::config::{Config, Layers};
    use crate::embedded::embed;
    use crate::node::Addresses;

    #[test]
    fn a_secret_of_the_configuration_is_not_printed_and_a_generated_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let address = "127.0.0.1:9000".parse().unwrap();
        let shown = |layers: &Layers| {
            let config = Config::read(layers, dir.path(), false).unwrap();
            let text = lines(&config, Addresses { s3: address, admin: address });
            (text, config.keys[0].secret.text.expose().to_owned())
        };
        let mut layers = Layers::default();
        embed(&dir.path().join("d"), larder_model::Access::Read, false, &mut layers).unwrap();
        let (text, secret) = shown(&layers);
        assert!(text.starts_with(
            "s3 endpoint: http://127.0.0.1:9000\nadmin: http://127.0.0.1:9000\naccess key: LARDER"
        ));
        assert!(text.contains(&format!("\nsecret key: {secret}\n")), "{text}");
        assert!(text.contains(" aws s3 ls s3://samples/ --endpoint-url http://127.0.0.1:9000\n"));
        layers.env.insert("MINE".into(), "canary-secret".into());
        let id = text.lines().nth(2).unwrap().trim_start_matches("access key: ").to_owned();
        layers.flags.push((format!("key.{id}.secret"), "env:MINE".into()));
        let (text, _) = shown(&layers);
        assert!(text.contains("access key: LARDER") && !text.contains("canary"), "{text}");
    }
}
