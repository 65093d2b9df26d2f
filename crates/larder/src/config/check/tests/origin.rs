//! The cases of `[origin.NAME]`.

use super::{GOOD, check, read};
use crate::config::{OriginKeys, OriginKind, S3Rule};
use larder_origin::{Addressing, Dialect};

/// A certificate that could be a root; its key is gone.
pub(super) const CA: &str = "\
-----BEGIN CERTIFICATE-----
MIIBezCCASGgAwIBAgIUAlfLx3/i36prrTZWTw2bBnjiFlwwCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHVGVzdCBDQTAgFw0yNjExMjExNDEwMTlaGA8yMTI2MTAyODE0
MTAxOVowEjEQMA4GA1UEAwwHVGVzdCBDQTBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABCloX5aV+y4bpO7wL426WS1ApKKI/X8qYORulIq+EJaVxHgt7n+c1pR8o3rT
Ua4fZ5bEPuDWPprU/V9sLikbHpqjUzBRMB0GA1UdDgQWBBTx9FwPI70Em0Appscv
mvJUUQCxcjAfBgNVHSMEGDAWgBTx9FwPI70Em0AppscvmvJUUQCxcjAPBgNVHRMB
Af8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQDC1UxILvt+kGmtoTyNSAqlEEyQ
sC6H08jInbkjhnrWywIgcVB9Zr7ZNDPXyoZ7nmzowxcJgOkJl48qBxsed7l6Xqc=
-----END CERTIFICATE-----
";

const S3: [(&str, &str); 4] = [
    ("origin.s.kind", "s3"),
    ("origin.s.endpoint", "https://s3.example.com"),
    ("origin.s.access_key_id", "AKID"),
    ("origin.s.secret_access_key", "file:secret"),
];

/// An S3 origin with these keys set too is refused with these messages, all of them.
fn check_s3(more: &[(&str, &str)], expected: &[&str]) {
    check(&[&S3, more].concat(), expected);
}

/// The rule of an origin of S3's, with these keys set too.
fn rule(more: &[(&str, &str)]) -> S3Rule {
    let config = read(GOOD, &[&S3, more].concat(), false).unwrap();
    let mut kinds = config.origins.into_iter().map(|rule| rule.kind);
    let found = kinds.find_map(|kind| match kind {
        OriginKind::S3(rule) => Some(*rule),
        OriginKind::Directory(_) => None,
    });
    found.unwrap()
}

#[test]
fn an_s3_origin_needs_endpoint_and_credentials() {
    check(
        &[("origin.s.kind", "s3"), ("origin.s.path", "x"), ("origin.s.attempts", "0")],
        &[
            "origin.s.path: applies to kind = \"directory\" only",
            "origin.s.endpoint: missing; write for example endpoint = \"https://s3.us-east-1.amazonaws.com\"",
            "origin.s.access_key_id: missing; write for example access_key_id = \"env:AWS_ACCESS_KEY_ID\"",
            "origin.s.secret_access_key: missing; write for example secret_access_key = \"file:/run/secrets/origin\"",
            "origin.s.attempts: must be at least 1",
        ],
    );
    check_s3(&[], &[]);
}

#[test]
fn an_endpoint_is_a_bare_url_and_is_not_repeated() {
    for endpoint in
        ["s3.example.com", "ftp://x", "http://canary:canary@x", "http://x/path", "http://x?q"]
    {
        check_s3(
            &[("origin.s.endpoint", endpoint)],
            &[
                "origin.s.endpoint: must be http:// or https://, a host, perhaps a port, nothing more",
            ],
        );
    }
}

#[test]
fn a_directory_origin_needs_a_folder_and_takes_no_keys_of_s3() {
    check(
        &[("origin.o.path", "nowhere")],
        &["origin.o.path: BASE/nowhere is not a folder that is there"],
    );
    check(
        &[("origin.o.region", "r"), ("origin.o.ca", "ca")],
        &[
            "origin.o.region: does not apply to kind = \"directory\"",
            "origin.o.ca: does not apply to kind = \"directory\"",
        ],
    );
    check(
        &[("origin.o.kind", "tape")],
        &["origin.o.kind: \"tape\" is not a kind; they are s3, oss, bos, directory"],
    );
}

#[test]
fn each_kind_has_its_addressing_and_its_region() {
    let oss = "https://s3.oss-cn-hangzhou-internal.aliyuncs.com";
    for (kind, endpoint, dialect, addressing, region) in [
        ("s3", "https://x", Dialect::S3, Addressing::Path, "us-east-1"),
        ("oss", oss, Dialect::Oss, Addressing::Virtual, "cn-hangzhou"),
        (
            "oss",
            "https://s3.oss-eu-central-1.aliyuncs.com",
            Dialect::Oss,
            Addressing::Virtual,
            "eu-central-1",
        ),
        ("bos", "https://s3.bj.bcebos.com", Dialect::Bos, Addressing::Path, "bj"),
    ] {
        let rule = rule(&[("origin.s.kind", kind), ("origin.s.endpoint", endpoint)]);
        assert_eq!((rule.dialect, rule.addressing), (dialect, addressing));
        assert_eq!(rule.region, region, "{endpoint}");
    }
    let given = rule(&[
        ("origin.s.kind", "oss"),
        ("origin.s.region", "cn-beijing"),
        ("origin.s.addressing", "path"),
    ]);
    assert_eq!((given.addressing, given.region.as_str()), (Addressing::Path, "cn-beijing"));
}

#[test]
fn a_region_that_cannot_be_known_must_be_given() {
    for (kind, example) in [("oss", "cn-hangzhou"), ("bos", "bj")] {
        for endpoint in ["https://x", "https://s3..bcebos.com", "https://s3.oss-a.b.aliyuncs.com"] {
            check_s3(
                &[("origin.s.kind", kind), ("origin.s.endpoint", endpoint)],
                &[&format!("origin.s.region: missing; write for example region = \"{example}\"")],
            );
        }
    }
    check_s3(
        &[("origin.s.kind", "oss"), ("origin.s.region", "oss-cn-hangzhou")],
        &["origin.s.region: signatures have the bare region; write \"cn-hangzhou\""],
    );
}

#[test]
fn keys_are_given_or_looked_up_but_not_both() {
    let looked_up = [
        ("origin.s.kind", "s3"),
        ("origin.s.endpoint", "https://x"),
        ("origin.s.credentials", "default"),
    ];
    check(&looked_up, &[]);
    let temporary = rule(&[("origin.s.session_token", "file:secret")]);
    assert!(matches!(temporary.keys, OriginKeys::Given(keys) if keys.session_token.is_some()));
    check_s3(
        &[("origin.s.credentials", "default")],
        &[
            "origin.s.access_key_id: does not go with credentials = \"default\"; leave out one",
            "origin.s.secret_access_key: does not go with credentials = \"default\"; leave out one",
        ],
    );
    check_s3(
        &[("origin.s.credentials", "mine")],
        &[
            "origin.s.credentials: \"mine\" must be \"default\", or left out beside access_key_id and secret_access_key",
        ],
    );
}

#[test]
fn a_ca_is_a_file_of_certificates_for_https() {
    assert_eq!(rule(&[("origin.s.ca", "ca")]).ca.unwrap().pem, CA.as_bytes());
    check_s3(
        &[("origin.s.ca", "nowhere")],
        &["origin.s.ca: cannot read BASE/nowhere: No such file or directory (os error 2)"],
    );
    check_s3(
        &[("origin.s.ca", "secret")],
        &["origin.s.ca: BASE/secret cannot be used: it holds no certificate"],
    );
    check_s3(
        &[("origin.s.ca", "ca"), ("origin.s.endpoint", "http://x")],
        &["origin.s.ca: applies to an endpoint that begins with https:// only"],
    );
}

#[test]
fn what_is_shown_of_an_origin_is_read_again_as_the_same() {
    for more in [
        &[("origin.s.kind", "oss"), ("origin.s.region", "cn-x"), ("origin.s.ca", "ca")][..],
        &[("origin.s.kind", "bos"), ("origin.s.region", "bj"), ("origin.s.addressing", "virtual")],
    ] {
        let dir = super::folder();
        let read = |text: &str, flags: &[(&str, &str)]| {
            let layers = super::layers(text, flags);
            crate::config::Config::read(&layers, dir.path(), false).unwrap().show().unwrap()
        };
        let shown = read(GOOD, &[&S3, more].concat());
        for (key, value) in more {
            let key = key.rsplit('.').next().unwrap();
            assert!(shown.contains(&format!("{key} = ")) && shown.contains(value), "{shown}");
        }
        assert_eq!(read(&shown, &[]), shown);
    }
}
