//! The guard table: what S3 refuses, refused as S3 refuses it, for both forms of a signature.

use super::support::{Ask, Form, Node, Setup, now};

const FORMS: [Form; 2] = [Form::Header, Form::Presigned];

/// Headers that S3 gives a meaning, most of which change what a request does.
const AMZ_HEADERS: [&str; 46] = [
    "x-amz-acl",
    "x-amz-bucket-object-lock-enabled",
    "x-amz-bypass-governance-retention",
    "x-amz-checksum-algorithm",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-mode",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-confirm-remove-self-bucket-access",
    "x-amz-copy-source",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-range",
    "x-amz-copy-source-server-side-encryption-customer-key",
    "x-amz-decoded-content-length",
    "x-amz-delete-marker",
    "x-amz-expected-bucket-owner",
    "x-amz-fwd-status",
    "x-amz-grant-full-control",
    "x-amz-grant-read",
    "x-amz-grant-read-acp",
    "x-amz-grant-write",
    "x-amz-grant-write-acp",
    "x-amz-meta-anything",
    "x-amz-metadata-directive",
    "x-amz-mfa",
    "x-amz-object-attributes",
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
    "x-amz-object-ownership",
    "x-amz-optional-object-attributes",
    "x-amz-rename-source",
    "x-amz-request-payer",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-security-token",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-source-expected-bucket-owner",
    "x-amz-storage-class",
    "x-amz-tagging",
    "x-amz-trailer",
    "x-amz-website-redirect-location",
];

async fn check(ask: Ask, status: u16, code: &str, what: &str) {
    ask.send().await.expect(status, code, what);
}

#[tokio::test]
async fn signed_requests_pass_in_both_forms() {
    let node = Node::start().await;
    for form in FORMS {
        let reply = node.get("/data/k").form(form).send().await;
        assert_eq!((reply.status, &*reply.text()), (200, "0123456789"));
        let region = node.get("/data/k").form(form).signed(|s| s.region = "cn-hangzhou".into());
        assert_eq!(region.send().await.status, 200);
        let signed = node.get("/data/k").form(form).header("x-amz-meta-anything", " two  words ");
        assert_eq!(signed.send().await.status, 403, "inner spaces are folded by AWS's rule only");
        let signed = node.get("/data/k").form(form).header("x-amz-meta-anything", "signed");
        assert_eq!(signed.send().await.status, 200);
    }
}

#[tokio::test]
async fn every_amz_header_must_be_signed() {
    let node = Node::start().await;
    for name in AMZ_HEADERS {
        for form in FORMS {
            let ask = node.get("/data/k").form(form).late_header(name, "1");
            let reply = ask.send().await;
            reply.expect(403, "AccessDenied", name);
            assert_eq!(reply.element("HeadersNotSigned").as_deref(), Some(name));
        }
    }
    assert!(node.double.read.lock().unwrap().is_empty(), "nothing was read");
}

#[tokio::test]
async fn a_list_of_signed_headers_counts_byte_for_byte() {
    let node = Node::start().await;
    // s3s forgets entries that it does not find, so an entry in capitals would sign nothing.
    let ask = node.get("/data/k").late_header("x-amz-copy-source", "/data/secret");
    let mut bytes = String::from_utf8(ask.to_bytes()).unwrap();
    bytes = bytes.replace("SignedHeaders=host;", "SignedHeaders=X-Amz-Copy-Source;host;");
    let (answer, _) = node.raw(bytes.as_bytes(), std::time::Duration::from_secs(10)).await;
    let reply = super::support::Reply::parse(&answer);
    reply.expect(403, "AccessDenied", "capitals");
    // A value that is no UTF-8 would be left out of the canonical request as well.
    let ask = node.get("/data/k").header("x-amz-meta-a", "PLACEHOLDER");
    let bytes = ask.to_bytes();
    let at = bytes.windows(11).position(|w| w == b"PLACEHOLDER").unwrap();
    let mut bytes = bytes;
    bytes[at] = 0xc1;
    let (answer, _) = node.raw(&bytes, std::time::Duration::from_secs(10)).await;
    super::support::Reply::parse(&answer).expect(400, "BadRequest", "no UTF-8");
}

#[tokio::test]
async fn the_host_must_be_signed() {
    let node = Node::start().await;
    let without = |s: &mut super::sign::Signing| {
        s.signed = Some(vec!["x-amz-content-sha256".into(), "x-amz-date".into()]);
    };
    check(node.get("/data/k").signed(without), 403, "AccessDenied", "header").await;
    let presigned = node.get("/data/k").form(Form::Presigned).signed(|s| s.signed = Some(vec![]));
    check(presigned, 403, "AccessDenied", "presigned").await;
}

#[tokio::test]
async fn a_scope_that_is_not_ours_is_refused() {
    let node = Node::start().await;
    let codes = [
        (Form::Header, "AuthorizationHeaderMalformed"),
        (Form::Presigned, "AuthorizationQueryParametersError"),
    ];
    for (form, code) in codes {
        let get = || node.get("/data/k").form(form);
        let reply = get().signed(|s| s.region = "eu-west-1".into()).send().await;
        reply.expect(400, code, "region");
        assert_eq!(reply.element("Region").as_deref(), Some("us-east-1"));
        check(get().signed(|s| s.service = "sts".into()), 400, code, "service").await;
        check(get().signed(|s| s.service = "ec2".into()), 400, code, "service").await;
        check(get().signed(|s| s.terminator = "aws3_request".into()), 400, code, "end").await;
        let other_day = |s: &mut super::sign::Signing| s.scope_date = Some("20130524".into());
        check(get().signed(other_day), 400, code, "date").await;
        let no_day = |s: &mut super::sign::Signing| s.scope_date = Some("yesterday".into());
        check(get().signed(no_day), 400, code, "date").await;
        check(get().signed(|s| s.access_key = "a/b".into()), 400, code, "key").await;
    }
}

#[tokio::test]
async fn a_clock_that_is_off_is_refused() {
    let node = Node::start().await;
    for off in [-16 * 60, 16 * 60] {
        let ask = node.get("/data/k").signed(|s| s.at = now() + off);
        let reply = ask.send().await;
        reply.expect(403, "RequestTimeTooSkewed", "header");
        assert_eq!(reply.element("MaxAllowedSkewMilliseconds").as_deref(), Some("900000"));
    }
    for off in [-14 * 60, 14 * 60] {
        let ask = node.get("/data/k").signed(|s| s.at = now() + off);
        assert_eq!(ask.send().await.status, 200, "{off}");
    }
}

#[tokio::test]
async fn a_presigned_url_lives_as_long_as_it_says_and_seven_days_at_most() {
    let node = Node::start().await;
    let get = || node.get("/data/k").form(Form::Presigned);
    let reply = get().signed(|s| s.at = now() - 700).send().await;
    reply.expect(403, "AccessDenied", "expired");
    assert_eq!(reply.element("Message").as_deref(), Some("Request has expired"));
    assert!(reply.element("Expires").is_some() && reply.element("ServerTime").is_some());
    let reply = get().signed(|s| s.at = now() + 16 * 60).send().await;
    reply.expect(403, "AccessDenied", "future");
    assert_eq!(reply.element("Message").as_deref(), Some("Request is not valid yet"));
    let week = |s: &mut super::sign::Signing| {
        s.at = now() - 600_000;
        s.expires = "604800".into();
    };
    assert_eq!(get().signed(week).send().await.status, 200);
    for expires in ["604801", "99999999999999999999", "0", "-1", "+5", "soon", ""] {
        let ask = get().signed(|s| s.expires = expires.into());
        check(ask, 400, "AuthorizationQueryParametersError", expires).await;
    }
}

#[tokio::test]
async fn other_algorithms_and_missing_authentication_are_refused() {
    let node = Node::start().await;
    let none = || node.get("/data/k").form(Form::None);
    check(none(), 403, "AccessDenied", "unsigned").await;
    let v2 = || none().header("authorization", "AWS TRAINER:c2lnbmF0dXJl");
    check(v2(), 400, "InvalidRequest", "SigV2 header").await;
    let query = "?AWSAccessKeyId=TRAINER&Signature=x&Expires=2000000000";
    for part in [query, "?Signature=x", "?AWSAccessKeyId=TRAINER", "?signature=x", "?%53ignature=x"]
    {
        let ask = none().late_query(part);
        check(ask, 400, "InvalidRequest", part).await;
    }
    for algorithm in ["AWS4-ECDSA-P256-SHA256", "AWS4-HMAC-SHA1"] {
        let ask = node.get("/data/k").signed(|s| s.algorithm = algorithm.into());
        check(ask, 400, "InvalidRequest", algorithm).await;
        let ask =
            node.get("/data/k").form(Form::Presigned).signed(|s| s.algorithm = algorithm.into());
        check(ask, 400, "AuthorizationQueryParametersError", algorithm).await;
    }
    check(none().header("authorization", "Bearer abc"), 400, "InvalidArgument", "bearer").await;
    for value in [
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 Credential=x",
        "AWS4-HMAC-SHA256 Credential=TRAINER/20130524/us-east-1/s3/aws4_request, Signature=0, SignedHeaders=host",
    ] {
        let ask = none().header("authorization", value);
        check(ask, 400, "AuthorizationHeaderMalformed", value).await;
    }
    let date = node.get("/data/k").form(Form::None).header("authorization", "AWS4-HMAC-SHA256 Credential=TRAINER/20130524/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0");
    check(date, 403, "AccessDenied", "no date").await;
}

#[tokio::test]
async fn a_post_policy_is_refused_before_its_form_is_read() {
    let node = Node::start().await;
    let form = "--b\r\nContent-Disposition: form-data; name=\"policy\"\r\n\r\ne30=\r\n--b--\r\n";
    for kind in ["multipart/form-data; boundary=b", "Multipart/Form-Data;boundary=b"] {
        let head = format!(
            "POST /data HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{form}",
            form.len()
        );
        let (answer, _) = node.raw(head.as_bytes(), std::time::Duration::from_secs(10)).await;
        super::support::Reply::parse(&answer).expect(400, "InvalidRequest", kind);
    }
}

#[tokio::test]
async fn what_may_be_there_once_is_refused_twice() {
    let node = Node::start().await;
    let get = || node.get("/data/k");
    let again = get().late_header("authorization", "AWS4-HMAC-SHA256 Credential=x");
    check(again, 400, "InvalidArgument", "authorization").await;
    let date = get().signing.amz_date();
    check(get().late_header("x-amz-date", &date), 400, "InvalidRequest", "date").await;
    let payload = get().late_header("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
    check(payload, 400, "InvalidRequest", "payload").await;
    check(get().late_header("host", "other"), 400, "BadRequest", "host").await;
    for name in ["Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature"] {
        let presigned = || get().form(Form::Presigned);
        for query in
            [format!("&X-Amz-{name}=1"), format!("&x-amz-{name}=1"), format!("&X%2DAmz-{name}=1")]
        {
            let ask = presigned().late_query(&query);
            check(ask, 400, "AuthorizationQueryParametersError", &query).await;
        }
    }
}

#[tokio::test]
async fn both_forms_of_a_signature_at_once_are_refused() {
    let node = Node::start().await;
    let presigned = node.get("/data/k").form(Form::Presigned);
    let both = presigned.late_header("authorization", "AWS4-HMAC-SHA256 Credential=x");
    check(both, 400, "InvalidArgument", "header behind presign").await;
    for query in ["?X-Amz-Signature=1", "?X-Amz-Date=1", "?x-amz-algorithm=AWS4-HMAC-SHA256"] {
        let both = node.get("/data/k").late_query(query);
        check(both, 400, "InvalidArgument", query).await;
    }
}

#[tokio::test]
async fn a_request_that_was_changed_behind_its_signature_is_refused() {
    let node = Node::start().await;
    for form in FORMS {
        let get = || node.get("/data/k?versionId=1").form(form).header("range", "bytes=0-1");
        let more = if form == Form::Header { "&partNumber=1" } else { "&response-expires=1" };
        check(get().late_query(more), 403, "SignatureDoesNotMatch", "query").await;
        let path = get().late_path("/data/secret");
        check(path, 403, "SignatureDoesNotMatch", "path").await;
        let wrong = get().signed(|s| s.secret.push('x'));
        check(wrong, 403, "SignatureDoesNotMatch", "secret").await;
        let unknown = get().signed(|s| s.access_key = "NOBODY".into());
        check(unknown, 403, "InvalidAccessKeyId", "key").await;
        let bytes = String::from_utf8(get().to_bytes()).unwrap();
        for (from, to) in [("bytes=0-1", "bytes=0-9"), ("GET /", "HEAD /")] {
            let changed = bytes.replacen(from, to, 1);
            let wait = std::time::Duration::from_secs(10);
            let (answer, _) = node.raw(changed.as_bytes(), wait).await;
            assert_eq!(super::support::Reply::parse(&answer).status, 403, "{to}");
        }
    }
    assert!(node.double.read.lock().unwrap().is_empty(), "nothing was read");
}

#[tokio::test]
async fn the_payload_header_is_asked_for_and_checked() {
    let node = Node::start().await;
    let reply = node.get("/data/k").signed(|s| s.payload = String::new()).send().await;
    reply.expect(400, "InvalidRequest", "missing");
    let message = "Missing required header for this request: x-amz-content-sha256";
    assert_eq!(reply.element("Message").as_deref(), Some(message));
    let odd = node.get("/data/k").signed(|s| s.payload = "ABC".into());
    check(odd, 400, "InvalidArgument", "odd").await;
    let unsigned = node.get("/data/k").signed(|s| s.payload = "UNSIGNED-PAYLOAD".into());
    assert_eq!(unsigned.send().await.status, 200);
}

#[tokio::test]
async fn methods_that_s3_does_not_know_are_refused() {
    let node = Node::start().await;
    for method in ["PATCH", "TRACE", "FOO"] {
        check(node.ask(method, "/data/k"), 405, "MethodNotAllowed", method).await;
    }
    check(node.ask("OPTIONS", "/data/k"), 400, "BadRequest", "OPTIONS").await;
    let preflight = node.ask("OPTIONS", "/data/k").header("origin", "http://x");
    check(preflight.header("access-control-request-method", "GET"), 403, "AccessForbidden", "CORS")
        .await;
    check(node.ask("PUT", "/"), 405, "MethodNotAllowed", "service").await;
    check(node.ask("PUT", "/data/k").form(Form::None), 403, "AccessDenied", "unsigned").await;
}

#[tokio::test]
async fn sizes_and_escapes_are_bounded() {
    let node = Node::start().await;
    let long = format!("/data/{}", "k".repeat(9000));
    check(node.get(&long), 414, "RequestURITooLong", "URI").await;
    let long = format!("/data/{}", "k".repeat(1025));
    check(node.get(&long), 400, "KeyTooLongError", "key").await;
    let wide = node.get("/data/k").header("x-custom", &"v".repeat(17_000));
    check(wide, 400, "RequestHeaderSectionTooLarge", "headers").await;
    for path in ["/data/%zz", "/data/%", "/data/%2", "/data/%ff"] {
        check(node.get(path), 400, "InvalidURI", path).await;
    }
    check(node.get("/data/k").late_query("?prefix=%zz"), 400, "InvalidURI", "query").await;
    for host in ["", "a b", "a,b", "user@host", "host:99999", "host:x", "[::1", "h/x"] {
        check(node.get("/data/k").host(host), 400, "BadRequest", host).await;
    }
    check(node.get("/ab/k"), 400, "InvalidBucketName", "bucket").await;
}

#[tokio::test]
async fn anonymous_mode_takes_unsigned_requests_and_still_verifies_signed_ones() {
    let node = Node::with(Setup { anonymous: true, ..Setup::default() }).await;
    assert_eq!(node.get("/data/k").form(Form::None).send().await.status, 200);
    assert_eq!(node.get("/data/k").send().await.status, 200);
    let wrong = node.get("/data/k").signed(|s| s.secret.push('x'));
    check(wrong, 403, "SignatureDoesNotMatch", "wrong").await;
    let v2 = node.get("/data/k").form(Form::None).header("authorization", "AWS TRAINER:x");
    check(v2, 400, "InvalidRequest", "SigV2").await;
    let half = node.get("/data/k").form(Form::None).late_query("?X-Amz-Signature=1");
    check(half, 400, "AuthorizationQueryParametersError", "half").await;
    let overridden = node.get("/data/k").form(Form::None).query("response-expires", "0");
    check(overridden, 400, "InvalidRequest", "override").await;
}

#[tokio::test]
async fn a_head_that_is_refused_has_no_body() {
    let node = Node::start().await;
    let reply = node.ask("HEAD", "/data/k").form(Form::None).send().await;
    assert_eq!((reply.status, reply.body.len()), (403, 0));
    let reply = node.ask("HEAD", "/data/k").signed(|s| s.secret.push('x')).send().await;
    assert_eq!((reply.status, reply.body.len()), (403, 0));
    assert!(reply.header("x-amz-request-id").is_some() && reply.header("x-amz-id-2").is_some());
}

#[tokio::test]
async fn keys_are_replaced_while_the_node_serves() {
    let node = Node::start().await;
    node.keys.replace([("NEW".to_owned(), "new-secret".to_owned())]);
    check(node.get("/data/k"), 403, "InvalidAccessKeyId", "old").await;
    let fresh = node.get("/data/k").signed(|s| {
        s.access_key = "NEW".into();
        s.secret = "new-secret".into();
    });
    check(fresh, 403, "AccessDenied", "no grant yet").await;
    node.rules.store(std::sync::Arc::new(super::support::rules(
        &[("data", "data", "", None)],
        &[("NEW", "data")],
    )));
    let fresh = node.get("/data/k").signed(|s| {
        s.access_key = "NEW".into();
        s.secret = "new-secret".into();
    });
    assert_eq!(fresh.send().await.status, 200);
}

#[tokio::test]
async fn a_session_token_is_refused_since_no_key_has_one() {
    let node = Node::start().await;
    for form in FORMS {
        let ask = node.get("/data/k").form(form).header("x-amz-security-token", "token");
        check(ask, 400, "InvalidToken", "header").await;
    }
    let ask = node.get("/data/k").form(Form::Presigned).query("X-Amz-Security-Token", "token");
    check(ask, 400, "InvalidToken", "query").await;
}

#[tokio::test]
async fn a_signed_header_that_is_not_there_is_a_wrong_signature() {
    let node = Node::start().await;
    for form in FORMS {
        let names = ["host", "range", "x-amz-content-sha256", "x-amz-date"];
        let names = names.iter().filter(|n| form == Form::Header || !n.starts_with("x-amz"));
        let names: Vec<String> = names.map(|name| (*name).to_owned()).collect();
        let ask = node.get("/data/k").form(form).signed(|s| s.signed = Some(names.clone()));
        check(ask, 403, "SignatureDoesNotMatch", "no range").await;
        let ask = node.get("/data/k").form(form).header("range", "bytes=0-1");
        assert_eq!(ask.signed(|s| s.signed = Some(names)).send().await.status, 206);
    }
}

#[tokio::test]
async fn a_read_has_the_digest_of_nothing() {
    let node = Node::start().await;
    let digest = "0".repeat(64);
    let ask = node.get("/data/k").signed(|s| s.payload = digest);
    check(ask, 400, "XAmzContentSHA256Mismatch", "GET").await;
}

#[tokio::test]
async fn anybody_must_name_this_machine() {
    let node = Node::with(Setup { anonymous: true, ..Setup::default() }).await;
    for (host, status) in [
        ("localhost:9000", 200),
        ("127.0.0.1", 200),
        ("s3.local", 200),
        ("rebound.example:9000", 403),
        ("127.0.0.1.example", 403),
    ] {
        let ask = node.get("/data/k").form(Form::None).host(host);
        assert_eq!(ask.send().await.status, status, "{host}");
    }
    let signed = node.get("/data/k").host("rebound.example:9000");
    assert_eq!(signed.send().await.status, 200, "who signs is no web page");
}
