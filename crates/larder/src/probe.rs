//! `larder origin probe`: asks an origin what it supports, and prints the answers and the lines to
//! set.
//!
//! Not here: the questions. Invariant: what is printed holds no key; with a bucket that may not be
//! written, nothing is.

use crate::cli::Probe;
use crate::config::{
    Config, OriginKind, OriginRule, Problem, Problems, S3Rule, addressing_text, dialect_text,
};
use crate::node::s3_config;
use crate::source;
use anyhow::{Context as _, bail};
use larder_origin::{Answer, Survey, survey};
use serde_json::json;
use std::fmt::Write as _;

/// Asks and prints.
///
/// # Errors
///
/// [`Problems`] for a configuration that is wrong or has no such origin; anything else when the origin
/// cannot be used as configured, or the probe's own object could not be deleted.
pub(crate) async fn run(command: &Probe) -> anyhow::Result<()> {
    let config = source::file_config(&command.layers)?;
    let (rule, s3) = find(&config, &command.name)?;
    let client = s3_config(&rule.name, s3);
    let asked = survey(&client, command.bucket.clone(), command.write);
    let found = asked.await.context("setting up the origin's client")?;
    if command.json {
        println!("{:#}", json(rule, s3, &found));
    } else {
        print!("{}", table(rule, s3, &found));
    }
    if let (Some(key), Some(bucket)) = (&found.left_behind, &found.bucket) {
        bail!("object {key} could not be deleted from bucket {bucket}; delete it by hand");
    }
    if !found.usable {
        bail!("origin {} cannot be asked as it is configured", rule.name);
    }
    Ok(())
}

fn find<'c>(config: &'c Config, name: &str) -> Result<(&'c OriginRule, &'c S3Rule), Problems> {
    let refuse = |message: String| Problems(vec![Problem::new(&["origin", name], message)]);
    let rule = config.origins.iter().find(|rule| rule.name.as_str() == name);
    let Some(rule) = rule else {
        let names: Vec<&str> = config.origins.iter().map(|rule| rule.name.as_str()).collect();
        return Err(refuse(format!("there is no such origin; there are {}", names.join(", "))));
    };
    match &rule.kind {
        OriginKind::S3(s3) => Ok((rule, s3)),
        OriginKind::Directory(_) => {
            Err(refuse("is a folder of this machine; only endpoints are probed".to_owned()))
        }
    }
}

fn word(answer: Answer) -> &'static str {
    match answer {
        Answer::Yes => "yes",
        Answer::No => "no",
        Answer::Unknown => "unknown",
    }
}

/// Key, value, and whether it is configured so already.
fn settings(s3: &S3Rule, found: &Survey) -> [(&'static str, String, bool); 3] {
    [
        ("kind", dialect_text(found.dialect).to_owned(), found.dialect == s3.dialect),
        (
            "addressing",
            addressing_text(found.addressing).to_owned(),
            found.addressing == s3.addressing,
        ),
        ("region", found.region.clone(), found.region == s3.region),
    ]
}

fn json(rule: &OriginRule, s3: &S3Rule, found: &Survey) -> serde_json::Value {
    let findings = found.findings.iter().map(|finding| {
        json!({
            "subject": finding.subject,
            "answer": word(finding.answer),
            "detail": finding.detail,
        })
    });
    let settings = settings(s3, found).map(|(key, value, _)| (key.to_owned(), value.into()));
    let settings = found.usable.then(|| serde_json::Map::from_iter(settings));
    json!({
        "origin": rule.name.as_str(),
        "endpoint": s3.endpoint,
        "bucket": found.bucket.as_ref().map(ToString::to_string),
        "usable": found.usable,
        "findings": findings.collect::<Vec<_>>(),
        "settings": settings,
        "left_behind": found.left_behind.as_ref().map(ToString::to_string),
    })
}

fn table(rule: &OriginRule, s3: &S3Rule, found: &Survey) -> String {
    let mut text = format!("origin {}  {}", rule.name, s3.endpoint);
    if let Some(bucket) = &found.bucket {
        let _writing_to_a_string_cannot_fail = write!(text, "  bucket {bucket}");
    }
    text.push_str("\n\n");
    let mut rows = vec![["QUESTION", "ANSWER", "DETAIL"]];
    rows.extend(
        found
            .findings
            .iter()
            .map(|finding| [finding.subject, word(finding.answer), finding.detail.as_str()]),
    );
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    for [subject, answer, detail] in &rows {
        let line = format!("{subject:<first$}  {answer:<second$}  {detail}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if found.usable {
        let _writing_to_a_string_cannot_fail = write!(text, "\n[origin.{}]\n", rule.name);
        for (key, value, as_configured) in settings(s3, found) {
            let remark = if as_configured { "" } else { "  # not as configured" };
            let _writing_to_a_string_cannot_fail = writeln!(text, "{key} = {value:?}{remark}");
        }
    }
    text
}
