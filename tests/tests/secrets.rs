//! No secret leaves the process: canaries as keys of clients and origins, everything exercised at
//! log level trace, then everything that came out is searched for them.

use anyhow::{Result, ensure};
use http::Method;
use larder_tests::client::{Ask, Client};
use larder_tests::larder::{ACCESS_KEY, Larder, SECRET, cache, dataset, s3_origin};
use larder_tests::moto::Moto;

/// Recognisable anywhere, also as a part of something longer.
const CLIENT_CANARY: &str = "canaryClientSecret7f3a91";
const ORIGIN_CANARY: &str = "canaryOriginSecret2b8c44";
const TOKEN_CANARY: &str = "canarySessionToken5d1e07";
const ADMIN_CANARY: &str = "canaryAdminToken93f6b2";

/// All that came out of the node, by where it was found.
#[derive(Default)]
struct Findings(Vec<(String, String)>);

impl Findings {
    fn add(&mut self, place: &str, text: impl Into<String>) {
        self.0.push((place.to_owned(), text.into()));
    }

    fn leaks(&self, canaries: &[(&str, &str)]) -> Vec<String> {
        let mut leaks = Vec::new();
        for (place, text) in &self.0 {
            for (name, canary) in canaries {
                if let Some(line) = text.lines().find(|line| line.contains(canary)) {
                    let line: String = line.chars().take(300).collect();
                    leaks.push(format!("{name} in {place}: {line}"));
                }
            }
        }
        leaks
    }
}

async fn start(moto: &Moto) -> Result<Larder> {
    let dir = tempfile::tempdir()?;
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text);
    write("client", CLIENT_CANARY)?;
    write("secret", SECRET)?;
    write("origin-secret", ORIGIN_CANARY)?;
    write("token", TOKEN_CANARY)?;
    write("admin-token", ADMIN_CANARY)?;
    let config = format!(
        "[listen]\ns3 = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n{}{}\
         session_token = \"file:token\"\n{}{}\
         [key.CANARY]\nsecret = \"file:client\"\nallow = [\"data:read\"]\n\
         [key.{ACCESS_KEY}]\nsecret = \"file:secret\"\nallow = [\"data:read\"]\n\
         [admin]\ntoken = \"file:admin-token\"\n",
        cache("32MiB", Some("512MiB")),
        s3_origin("moto", &moto.endpoint()),
        s3_origin("gone", "http://127.0.0.1:9")
            .replace("[origin.gone]\n", "[origin.gone]\nattempts = 1\n"),
        dataset("data", "moto", "data", "freshness = \"strict\"")
            + &dataset("lost", "gone", "lost", "freshness = \"strict\"")
    );
    write("larder.toml", &config)?;
    Larder::start_in(dir, ["--log-level", "trace"].map(str::to_owned).to_vec()).await
}

#[tokio::test]
async fn no_secret_and_no_expected_signature_comes_out() -> Result<()> {
    let moto = Moto::start().await?;
    let origin = moto.client();
    origin.make_bucket("data").await?;
    origin.put("data", "k", vec![7; 100_000]).await?;
    let mut larder = start(&moto).await?;
    let mut findings = Findings::default();

    let good = Client::new(larder.endpoint(), "CANARY", CLIENT_CANARY);
    for ask in [
        Ask::object(Method::GET, "data", "k"),
        Ask::object(Method::HEAD, "data", "k"),
        Ask::object(Method::GET, "data", "k").header("range", "bytes=0-9"),
        Ask::target(Method::GET, "/data").query("list-type", "2"),
        Ask::target(Method::GET, "/"),
        Ask::object(Method::GET, "data", "missing"),
        Ask::object(Method::GET, "lost", "k"),
        Ask::object(Method::GET, "nowhere", "k"),
        Ask::object(Method::PUT, "data", "k").body("x"),
    ] {
        let reply = good.send(&ask).await?;
        let text = format!("{:?}\n{}", reply.headers, reply.text());
        findings.add(&format!("the answer to {ask:?}"), text);
    }

    // Requests whose signature is wrong: what the node computed for them must not be told.
    let mut expected = Vec::new();
    for ask in [
        Ask::object(Method::GET, "data", "k"),
        Ask::target(Method::GET, "/data").query("prefix", "a"),
        Ask::object(Method::PUT, "data", "k").body("x"),
    ] {
        let mut signed = good.sign(&ask)?;
        let header = signed.request.headers()["authorization"].to_str()?.to_owned();
        let wrong = header.replace(&signed.signature, &"0".repeat(64));
        ensure!(wrong != header, "the signature is not in the header");
        signed.request.headers_mut().insert("authorization", wrong.parse()?);
        let reply = good.send_as_is(signed.request).await?.expect(403)?;
        ensure!(reply.text().contains("SignatureDoesNotMatch"), "{}", reply.text());
        findings.add("the answer to a bad signature", reply.text());
        expected.push(signed.signature);
    }
    let token = good.clone().with_token("somebodys-token");
    findings
        .add("a session token", token.send(&Ask::object(Method::GET, "data", "k")).await?.text());
    let nobody = Client::new(larder.endpoint(), "NOBODY", "whatever-it-is");
    findings.add("an unknown key", nobody.get("data", "k").await?.expect(403)?.text());
    let bare = nobody.unsigned(&Ask::object(Method::GET, "data", "k"))?;
    findings.add("no signature", nobody.send_as_is(bare).await?.expect(403)?.text());

    for path in ["/metrics", "/v1/status", "/healthz", "/readyz", "/v1/none"] {
        let (status, text) = larder.ask_admin(path).await?;
        findings.add(path, format!("{status} {text}"));
    }
    findings
        .add("config show", larder.command(&["config", "show", "--config", "larder.toml"]).await?);
    findings.add(
        "config check",
        larder.command(&["config", "check", "--config", "larder.toml"]).await?,
    );
    let ended = larder.stop().await?;
    ensure!(ended.success(), "SIGTERM ended it with {ended}");
    findings.add("standard output", larder.output()?);
    let log = larder.log()?;
    ensure!(log.contains("DEBUG"), "the log is not at the level that was asked for:\n{log}");
    // The libraries' own lines at these levels hold headers and expected signatures.
    let detailed = log.lines().filter(|line| line.contains("DEBUG") || line.contains("TRACE"));
    for line in detailed {
        let foreign = ["hyper", "hyper_util", "h2", "rustls", "tokio_rustls", "s3s", "aws_"];
        let told = |name: &&str| {
            line.contains(&format!(" {name}::")) || line.contains(&format!(" {name}:"))
        };
        ensure!(!foreign.iter().any(told), "a library's line in the log: {line}");
        ensure!(!line.contains(" aws_"), "a line of the SDK in the log: {line}");
    }
    ensure!(log.matches("SignatureDoesNotMatch").count() >= 3, "refusals are not logged:\n{log}");
    findings.add("the log", log);

    let mut canaries = vec![
        ("the client's secret", CLIENT_CANARY),
        ("the origin's secret", ORIGIN_CANARY),
        ("the origin's session token", TOKEN_CANARY),
        ("the admin token", ADMIN_CANARY),
        ("the tests' secret", SECRET),
    ];
    canaries.extend(expected.iter().map(|signature| ("an expected signature", signature.as_str())));
    let leaks = findings.leaks(&canaries);
    let searched: usize = findings.0.iter().map(|(_, text)| text.len()).sum();
    println!(
        "searched {} places, {searched} bytes, for {} canaries: {} leaks",
        findings.0.len(),
        canaries.len(),
        leaks.len()
    );
    ensure!(leaks.is_empty(), "{}", leaks.join("\n"));
    Ok(())
}

#[test]
fn a_leak_would_be_found() {
    let mut findings = Findings::default();
    findings.add("here", "a line\nkey=canaryX end\n");
    assert_eq!(findings.leaks(&[("x", "canaryX")]).len(), 1);
    assert_eq!(findings.leaks(&[("y", "canaryY")]).len(), 0);
}
