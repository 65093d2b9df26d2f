//! `larder status`: asks a node's admin listener and prints a table.
//!
//! Not here: TLS; the admin listener speaks plain HTTP. Invariant: the token goes into the one
//! header and nowhere else.

use crate::cli::Status;
use crate::report::{DatasetReport, Report};
use anyhow::{Context as _, bail};
use bytesize::ByteSize;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST};
use hyper_util::rt::TokioIo;
use std::fmt::Write as _;
use std::time::Duration;
use tokio::net::TcpStream;

/// How long a node may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two looks of `--watch`.
const WATCH_PERIOD: Duration = Duration::from_secs(2);
/// The longest answer that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 20;
const HEADINGS: [&str; 9] = [
    "NAME",
    "CACHED",
    "CACHE CAPACITY",
    "CACHED %",
    "OBJECTS",
    "HIT RATIO",
    "ORIGIN BYTES",
    "POLICY",
    "FRESHNESS",
];

/// Prints the status once, or until interrupted.
///
/// # Errors
///
/// When the node cannot be asked; with `--watch`, only at the first time.
pub(crate) async fn run(command: &Status) -> anyhow::Result<()> {
    print!("{}", look(command).await?);
    if !command.watch {
        return Ok(());
    }
    loop {
        tokio::time::sleep(WATCH_PERIOD).await;
        match look(command).await {
            Ok(text) if command.json => print!("{text}"),
            // Clears the screen and goes to its top (ECMA-48 ED and CUP).
            Ok(text) => print!("\x1b[2J\x1b[H{text}"),
            Err(error) => eprintln!("{error:#}"),
        }
    }
}

async fn look(command: &Status) -> anyhow::Result<String> {
    let asked = fetch(&command.admin, "/v1/status", command.token.as_deref());
    let (status, body) = asked.await.with_context(|| format!("asking {}", command.admin))?;
    match status {
        200 => {}
        401 => bail!("{} wants its token; give it with --token or LARDER_TOKEN", command.admin),
        _ => bail!("{} answered {status}: {}", command.admin, String::from_utf8_lossy(&body)),
    }
    let told = || format!("{} does not answer as a Larder node does", command.admin);
    if command.json {
        let json: serde_json::Value = serde_json::from_slice(&body).with_context(told)?;
        return Ok(format!("{json:#}\n"));
    }
    let report: Report = serde_json::from_slice(&body).with_context(told)?;
    Ok(table(&report))
}

/// One GET over a connection of its own: status and body.
pub(crate) async fn fetch(
    url: &str,
    path: &str,
    token: Option<&str>,
) -> anyhow::Result<(u16, Bytes)> {
    tokio::time::timeout(ANSWER_TIMEOUT, exchange(url, path, token))
        .await
        .with_context(|| format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))?
}

async fn exchange(url: &str, path: &str, token: Option<&str>) -> anyhow::Result<(u16, Bytes)> {
    let url: http::Uri = url.parse().context("not a URL")?;
    if url.scheme_str() != Some("http") {
        bail!("the URL must begin with http://");
    }
    let host = url.authority().context("the URL names no host")?;
    let port = host.port_u16().unwrap_or(80);
    let name = host.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((name, port)).await.context("cannot connect")?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut request = http::Request::get(path).header(HOST, host.as_str());
    if let Some(token) = token {
        let value = http::HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.ok().context("the token has characters that no header can hold")?;
        value.set_sensitive(true);
        request = request.header(AUTHORIZATION, value);
    }
    let answer = async {
        let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!(error))?;
        Ok((status, body.to_bytes()))
    };
    tokio::pin!(connection, answer);
    tokio::select! {
        result = &mut answer => result,
        closed = &mut connection => {
            closed?;
            answer.await
        }
    }
}

fn table(report: &Report) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(report.datasets.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..HEADINGS.len()).filter_map(width).collect();
    let mut text = format!(
        "node {}  version {}  {}  up {}\n\n",
        report.node,
        report.version,
        report.phase,
        humantime::format_duration(Duration::from_secs(report.uptime_seconds))
    );
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _writing_to_a_string_cannot_fail = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn row(dataset: &DatasetReport) -> [String; 9] {
    let bytes = |bytes: u64| ByteSize::b(bytes).display().iec().to_string();
    let ratio = dataset.hit_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
    [
        dataset.name.clone(),
        bytes(dataset.cached_bytes),
        bytes(dataset.capacity_bytes),
        format!("{:.1}", dataset.cached_percent),
        dataset.cached_objects.to_string(),
        ratio,
        bytes(dataset.origin_bytes),
        dataset.policy.clone(),
        dataset.freshness.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::{fetch, table};
    use crate::report::{DatasetReport, Report};

    fn dataset(name: &str, hit_ratio: Option<f64>) -> DatasetReport {
        DatasetReport {
            name: name.into(),
            origin: "o".into(),
            bucket: "*".into(),
            prefix: String::new(),
            policy: "lru".into(),
            freshness: "strict".into(),
            cached_bytes: 3 << 30,
            capacity_bytes: 12 << 30,
            cached_percent: 25.0,
            cached_objects: 17,
            known_objects: 20,
            served_bytes: 4,
            hit_bytes: 1,
            origin_bytes: 5 << 20,
            hit_ratio,
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_dataset_and_its_columns_line_up() {
        let report = Report {
            node: "n".into(),
            version: "0.1.0".into(),
            phase: "ready".into(),
            uptime_seconds: 3723,
            datasets: vec![dataset("imagenet", Some(0.25)), dataset("d", None)],
        };
        let text = table(&report);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "node n  version 0.1.0  ready  up 1h 2m 3s");
        assert!(lines[2].starts_with("NAME      CACHED   CACHE CAPACITY  CACHED %"), "{text}");
        let cells: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "imagenet", "3.0", "GiB", "12.0", "GiB", "25.0", "17", "0.250", "5.0", "MiB",
                "lru", "strict"
            ]
        );
        assert!(lines[4].contains(" -  "), "{text}");
        assert_eq!(lines[2].find("POLICY"), lines[4].find("lru"));
    }

    #[tokio::test]
    async fn a_node_that_is_not_there_is_an_error_that_says_so() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let error = fetch(&url, "/healthz", None).await.unwrap_err();
        assert!(format!("{error:#}").contains("cannot connect"), "{error:#}");
        assert!(fetch("https://localhost:1", "/", None).await.is_err());
    }
}
