//! Uploads by browsers' forms: the policy and its signature, the file, and what is answered.

use super::double::Canned;
use super::sign::{Signing, hmac};
use super::support::{KEY, Node, Reply, Setup, access_rules, signing};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_model::Access::ReadWrite;
use std::time::Duration;

const POLICY: &str = "{\"expiration\": \"2099-01-01T00:00:00Z\", \"conditions\": [\
    {\"bucket\": \"data\"}, [\"starts-with\", \"$key\", \"in/\"], [\"starts-with\", \"$x-amz-\", \"\"],\
    [\"content-length-range\", 1, 3000000], {\"success_action_status\": \"201\"},\
    [\"starts-with\", \"$x-amz-date\", \"\"], [\"starts-with\", \"$x-amz-credential\", \"\"],\
    [\"starts-with\", \"$x-amz-algorithm\", \"\"], [\"starts-with\", \"$x-amz-meta-a\", \"\"],\
    [\"starts-with\", \"$content-type\", \"\"], [\"starts-with\", \"$x-amz-new\", \"\"],\
    [\"starts-with\", \"$tagging\", \"\"], [\"starts-with\", \"$content-md5\", \"\"]]}";

async fn node() -> Node {
    let rules = access_rules(
        &[("data", "data", "", None), ("pics", "train-data", "deep/", Some("pictures"))],
        &[(KEY, "data", ReadWrite)],
    );
    Node::with(Setup { rules, forms: true, ..Setup::default() }).await
}

/// The fields of a form, signed; `more` come in front.
fn fields(signing: &Signing, policy: &str, more: &[(&str, &str)]) -> Vec<(String, String)> {
    let policy = STANDARD.encode(policy);
    let mut key = format!("AWS4{}", signing.secret).into_bytes();
    for field in signing.scope().split('/') {
        key = hmac(&key, field.as_bytes());
    }
    let signature = hex::encode(hmac(&key, policy.as_bytes()));
    let mut fields: Vec<(String, String)> =
        more.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    for (name, value) in [
        ("policy", policy),
        ("X-Amz-Algorithm", signing.algorithm.clone()),
        ("X-Amz-Credential", format!("{}/{}", signing.access_key, signing.scope())),
        ("X-Amz-Date", signing.amz_date()),
        ("X-Amz-Signature", signature),
    ] {
        fields.push((name.to_owned(), value));
    }
    fields
}

fn form(fields: &[(String, String)], file: &[u8], behind: &str) -> Vec<u8> {
    let mut body = String::new();
    for (name, value) in fields {
        body +=
            &format!("--BB\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    }
    body += "--BB\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a b.txt\"\r\n\
             Content-Type: text/plain\r\n\r\n";
    [body.as_bytes(), file, b"\r\n--BB", behind.as_bytes(), b"--\r\n"].concat()
}

async fn send(node: &Node, bucket: &str, body: &[u8]) -> Reply {
    let head = format!(
        "POST /{bucket} HTTP/1.1\r\nhost: {}\r\ncontent-type: multipart/form-data; boundary=BB\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        node.address,
        body.len()
    );
    let (answer, _) = node.raw(&[head.as_bytes(), body].concat(), Duration::from_secs(10)).await;
    Reply::parse(&answer)
}

const GOOD: [(&str, &str); 2] = [("key", "in/${filename}"), ("success_action_status", "201")];

#[tokio::test]
async fn a_form_that_its_policy_allows_is_stored() {
    let node = node().await;
    for len in [1, 100_000, 2_500_000] {
        let file: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let more = [&GOOD[..], &[("x-amz-meta-a", "b"), ("Content-Type", "text/css")]].concat();
        let body = form(&fields(&signing(), POLICY, &more), &file, "");
        let reply = send(&node, "data", &body).await;
        assert_eq!(
            (reply.status, reply.element("Key").as_deref()),
            (201, Some("in/a b.txt")),
            "{}",
            reply.text()
        );
        assert_eq!(reply.element("ETag").as_deref(), Some("&quot;written&quot;"));
        let arrived = node.double.one();
        assert_eq!((&*arrived.method, &*arrived.path), ("PUT", "/data/in/a b.txt"));
        assert!(arrived.body.as_deref() == Some(&*file), "{len} bytes");
        assert_eq!(arrived.header("x-amz-meta-a"), Some("b"));
        assert_eq!(arrived.header("content-type"), Some("text/css"));
        assert_eq!(arrived.headers.len(), 2, "{:?}", arrived.headers);
        assert_eq!(format!("{:?}", arrived.changes), "Objects([\"in/a b.txt\"])");
    }
    // Browsers put the button behind the file.
    let button = "\r\nContent-Disposition: form-data; name=\"submit\"\r\n\r\nGo\r\n--BB";
    let body = form(&fields(&signing(), POLICY, &GOOD), b"small", button);
    assert_eq!(send(&node, "data", &body).await.status, 201);
    assert_eq!(node.double.one().text(), "small");
    let body = form(&fields(&signing(), POLICY, &GOOD), &[b'x'; 2_000_000], button);
    send(&node, "data", &body).await.expect(400, "IncompleteBody", "a long file is the last part");
    assert!(node.double.take().iter().all(|arrived| arrived.body.is_none()));
    let tags = "<Tagging><TagSet><Tag><Key>a b</Key><Value>c</Value></Tag></TagSet></Tagging>";
    let body =
        form(&fields(&signing(), POLICY, &[&GOOD[..], &[("tagging", tags)]].concat()), b"x", "");
    assert_eq!(send(&node, "data", &body).await.status, 201);
    assert_eq!(node.double.one().header("x-amz-tagging"), Some("a%20b=c"));
}

#[tokio::test]
async fn a_form_that_its_policy_does_not_allow_is_refused() {
    let node = node().await;
    let check =
        async |bucket: &str, fields: &[(String, String)], file: &[u8], status, code: &str| {
            send(&node, bucket, &form(fields, file, "")).await.expect(status, code, bucket);
            assert!(node.double.take().is_empty(), "{code}");
        };
    let good = fields(&signing(), POLICY, &GOOD);
    check("pictures", &good, b"x", 403, "AccessDenied").await;
    check("data", &good, b"", 400, "EntityTooSmall").await;
    check("data", &good, &[0; 3_000_001], 400, "EntityTooLarge").await;
    for (name, value) in [("x-amz-acl", "public-read"), ("acl", "public-read"), ("tagging2", "x")] {
        let more = [&GOOD[..], &[(name, value)]].concat();
        check("data", &fields(&signing(), POLICY, &more), b"x", 403, "AccessDenied").await;
    }
    let twice = [&GOOD[..], &[("key", "in/other")]].concat();
    check("data", &fields(&signing(), POLICY, &twice), b"x", 400, "InvalidArgument").await;
    let foreign = [&GOOD[..], &[("x-amz-new", "1")]].concat();
    check("data", &fields(&signing(), POLICY, &foreign), b"x", 501, "NotImplemented").await;
    let wrong_sum = [&GOOD[..], &[("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")]].concat();
    check("data", &fields(&signing(), POLICY, &wrong_sum), b"x", 400, "BadDigest").await;
    let outside = [("key", "out/a"), ("success_action_status", "201")];
    check("data", &fields(&signing(), POLICY, &outside), b"x", 403, "AccessDenied").await;
    let over = POLICY.replace("2099", "2019");
    check("data", &fields(&signing(), &over, &GOOD), b"x", 403, "AccessDenied").await;
    check("data", &fields(&signing(), "nonsense", &GOOD), b"x", 400, "InvalidPolicyDocument").await;
    let change = |change: fn(&mut Signing)| {
        let mut signing = signing();
        change(&mut signing);
        fields(&signing, POLICY, &GOOD)
    };
    check("data", &change(|s| s.secret.push('x')), b"x", 403, "SignatureDoesNotMatch").await;
    check("data", &change(|s| s.access_key.push('x')), b"x", 403, "InvalidAccessKeyId").await;
    check("data", &change(|s| s.region = "eu-west-1".into()), b"x", 400, "InvalidArgument").await;
    check("data", &change(|s| s.at -= 8 * 24 * 3600), b"x", 403, "AccessDenied").await;
    let mut changed = good.clone();
    changed[2].1 = STANDARD.encode(POLICY.replace("in/", ""));
    check("data", &changed, b"x", 403, "SignatureDoesNotMatch").await;
    let unsigned: Vec<_> = good.iter().filter(|(name, _)| name != "policy").cloned().collect();
    check("data", &unsigned, b"x", 403, "AccessDenied").await;
    let long = "x".repeat(30_000);
    let large = [&GOOD[..], &[("x-ignore-a", &*long)]].concat();
    check(
        "data",
        &fields(&signing(), POLICY, &large),
        b"x",
        400,
        "MaxPostPreDataLengthExceededError",
    )
    .await;
    send(&node, "data", b"--BX\r\n\r\n").await.expect(400, "MalformedPOSTRequest", "boundary");
    send(&node, "data", b"--BB--\r\n").await.expect(400, "InvalidArgument", "no file");
    node.ask("POST", "/data").body("x").send().await.expect(412, "PreconditionFailed", "no form");
}

#[tokio::test]
async fn a_form_says_what_is_answered() {
    let node = node().await;
    let policy = POLICY.replace("{\"success_action_status\": \"201\"},", "[\"starts-with\", \"$success_action_redirect\", \"\"], [\"starts-with\", \"$success_action_status\", \"\"],");
    let post = |more: &[(&str, &str)]| {
        let more = [&[("key", "in/a b")], more].concat();
        form(&fields(&signing(), &policy, &more), b"x", "")
    };
    let reply = send(&node, "data", &post(&[])).await;
    assert_eq!((reply.status, reply.body.len()), (204, 0));
    assert!(reply.header("location").unwrap().ends_with("/data/in%2Fa%20b"));
    let reply = send(&node, "data", &post(&[("success_action_status", "200")])).await;
    assert_eq!((reply.status, reply.header("etag")), (200, Some("\"written\"")));
    let reply = send(&node, "data", &post(&[("success_action_status", "404")])).await;
    assert_eq!(reply.status, 204);
    let reply = send(&node, "data", &post(&[("success_action_redirect", "http://x/y?z=1")])).await;
    let to = "http://x/y?z=1&bucket=data&key=in%2Fa%20b&etag=%22written%22";
    assert_eq!((reply.status, reply.header("location")), (303, Some(to)));
    let reply = send(&node, "data", &post(&[("success_action_redirect", "javascript:x")])).await;
    assert_eq!(reply.status, 204);
    node.double.answer(Canned::xml(403, "<Error><Code>AccessDenied</Code></Error>"));
    let reply = send(&node, "data", &post(&[("success_action_redirect", "http://x/")])).await;
    assert_eq!((reply.status, &*reply.text()), (403, "<Error><Code>AccessDenied</Code></Error>"));
}
