//! One case for each rule: the text that breaks it and the message that the user sees.

mod origin;

use crate::config::{Config, Layers};
use std::collections::BTreeMap;
use std::path::Path;

/// A folder with the files that the cases refer to.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    std::fs::write(dir.path().join("secret"), "canary-secret\n").unwrap();
    std::fs::write(dir.path().join("short"), "hush\n").unwrap();
    std::fs::write(dir.path().join("ca"), origin::CA).unwrap();
    dir
}

/// What each case starts from. Later sections of a case may add to it.
const GOOD: &str = r#"
[origin.o]
kind = "directory"
path = "data"
[dataset.d]
origin = "o"
bucket = "train"
[key.K]
secret = "file:secret"
allow = ["d:read"]
"#;

fn layers(text: &str, flags: &[(&str, &str)]) -> Layers {
    Layers {
        file_name: "larder.toml".into(),
        text: text.into(),
        env: BTreeMap::new(),
        flags: flags.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
    }
}

fn read(text: &str, flags: &[(&str, &str)], anonymous: bool) -> Result<Config, Vec<String>> {
    let dir = folder();
    let base: &Path = dir.path();
    Config::read(&layers(text, flags), base, anonymous).map_err(|problems| {
        let shown = problems.0.iter().map(|problem| {
            let mut problem = problem.clone();
            problem.place = None;
            problem.to_string().replace(&base.display().to_string(), "BASE")
        });
        shown.collect()
    })
}

/// `GOOD` with these keys set is refused with these messages, all of them.
fn check(flags: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(read(GOOD, flags, false).err().unwrap_or_default(), expected, "{flags:?}");
}

#[test]
fn the_good_configuration_is_good_and_has_the_documented_defaults() {
    let config = read(GOOD, &[], false).unwrap();
    assert_eq!(config.listen.s3.to_string(), "127.0.0.1:9000");
    assert_eq!(config.listen.admin.to_string(), "127.0.0.1:9001");
    assert_eq!(config.limits.memory_bytes, 1 << 30);
    assert_eq!(config.cache.memory_bytes, 512 << 20);
    assert_eq!(config.datasets[0].block_bytes, 1 << 20);
    assert_eq!(config.datasets[0].policy.as_str(), "lru");
    assert_eq!(config.datasets[0].freshness, larder_model::Freshness::Strict);
}

#[test]
fn listen_addresses_are_an_ip_and_a_port_and_differ() {
    check(
        &[("listen.s3", "localhost:9000")],
        &[
            "listen.s3: \"localhost:9000\" is not an IP address with a port; write for example \"0.0.0.0:9000\"",
        ],
    );
    check(
        &[("listen.admin", "127.0.0.1:9000")],
        &["listen.admin: is the same address as listen.s3"],
    );
    check(&[("listen.s3", "127.0.0.1:0"), ("listen.admin", "127.0.0.1:0")], &[]);
}

#[test]
fn regions_and_domains_are_words() {
    check(&[("listen.regions", "[\"a b\"]")], &["listen.regions.0: \"a b\" is not a region"]);
    check(
        &[("listen.domains", "[\"s3.local\", \"a/b\"]")],
        &["listen.domains.1: \"a/b\" is not a host name"],
    );
}

#[test]
fn a_socket_needs_its_folder() {
    check(
        &[("listen.socket", "nowhere/s3.sock")],
        &["listen.socket: the folder of BASE/nowhere/s3.sock is not there"],
    );
    check(&[("listen.socket", "s3.sock")], &[]);
}

#[test]
fn tls_files_must_be_there_and_hold_what_they_should() {
    check(
        &[("listen.tls.cert", "nowhere.crt"), ("listen.tls.key", "secret")],
        &[
            "listen.tls.cert: cannot read BASE/nowhere.crt: No such file or directory (os error 2)",
            "listen.tls.key: BASE/secret holds no PEM block of a PRIVATE KEY",
        ],
    );
    check(
        &[("listen.tls.cert", "secret")],
        &[
            "listen.tls.cert: BASE/secret holds no PEM block of a CERTIFICATE",
            "listen.tls.key: missing; write for example key = \"tls.pem\"",
        ],
    );
}

#[test]
fn the_admin_listener_off_loopback_needs_a_token() {
    check(
        &[("listen.admin", "0.0.0.0:9001")],
        &[
            "admin.token: needed because listen.admin is not a loopback address; write for example token = \"file:/run/secrets/admin\"",
        ],
    );
    check(&[("listen.admin", "0.0.0.0:9001"), ("admin.token", "file:secret")], &[]);
}

#[test]
fn memory_limits_leave_room_for_what_is_in_flight() {
    check(
        &[("cache.memory", "1GiB")],
        &["cache.memory: must be less than limits.memory, which covers everything"],
    );
    check(
        &[("cache.memory", "1000MiB")],
        &[
            "cache.memory: leaves no room for bytes in flight: 870 MiB of limits.memory are for blocks (15 % is set aside, and the write buffers of the SSD), and beside the cache they must hold a span of 16 MiB; at most 854MiB here, or raise limits.memory",
        ],
    );
    check(
        &[("limits.memory", "1MiB"), ("cache.memory", "512KiB")],
        &[
            "limits.memory: must be at least 64MiB",
            "cache.memory: leaves no room for bytes in flight: 0 MiB of limits.memory are for blocks (15 % is set aside, and the write buffers of the SSD), and beside the cache they must hold a span of 16 MiB; at most 0MiB here, or raise limits.memory",
            "cache.memory: the memory quotas leave less than four blocks to the datasets without a quota; raise it or lower the quotas",
        ],
    );
    check(&[("limits.connections", "0")], &["limits.connections: must be at least 1"]);
}

#[test]
fn write_buffers_of_the_ssd_are_part_of_the_memory() {
    let disk = [("cache.disk.path", "cache"), ("cache.disk.capacity", "250GiB")];
    let config = read(GOOD, &disk, false).unwrap();
    let buffers: u64 = config.pools().iter().map(larder_store::buffer_bytes).sum();
    assert!(buffers > 64 << 20, "{buffers}");
    let budget = config.block_budget_bytes();
    assert_eq!(budget, (1_u64 << 30) / 100 * 85 - buffers);
    assert!(config.cache.memory_bytes + (16 << 20) <= budget);
}

#[test]
fn quotas_fit_into_the_cache() {
    let disk = [("cache.disk.path", "cache"), ("cache.disk.capacity", "10GiB")];
    let quota = |memory: &'static str, bytes: &'static str| {
        let mut flags = disk.to_vec();
        flags.extend([("dataset.d.quota.memory", memory), ("dataset.d.quota.disk", bytes)]);
        flags
    };
    check(&quota("64MiB", "7GiB"), &[]);
    let errors = read(GOOD, &quota("64MiB", "8193MiB"), false).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    let expected = "cache.disk.capacity: the disk quotas of the datasets are 8193 MiB together and their files take ";
    assert!(errors[0].starts_with(expected), "{errors:?}");
    check(
        &quota("513MiB", "1GiB"),
        &["cache.memory: the memory quotas of the datasets are 513 MiB together, more than this"],
    );
    check(
        &quota("1MiB", "1GiB"),
        &["dataset.d.quota.memory: must hold at least four blocks of the dataset, 4096KiB"],
    );
    check(
        &[("dataset.d.quota.disk", "1GiB")],
        &[
            "dataset.d.quota.disk: there is no cache.disk to take it from; add one or leave this out",
            "dataset.d.quota.memory: missing; write for example memory = \"256MiB\"",
        ],
    );
    check(
        &[("cache.disk.path", "cache"), ("cache.disk.capacity", "1MiB")],
        &[
            "cache.disk.capacity: leaves nothing to the datasets without a quota, after the files of the disk quotas and a few spare regions; raise it or lower the quotas",
        ],
    );
}

#[test]
fn watermarks_are_ordered_fractions() {
    for (high, low) in [("0.8", "0.9"), ("1.5", "0.5"), ("0.5", "0.0"), ("0.5", "0.5")] {
        let flags = [
            ("dataset.d.quota.memory", "64MiB"),
            ("dataset.d.quota.high", high),
            ("dataset.d.quota.low", low),
        ];
        let errors = read(GOOD, &flags, false).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].starts_with("dataset.d.quota: low ("), "{errors:?}");
    }
}

#[test]
fn a_disk_has_a_folder_and_a_capacity() {
    check(
        &[("cache.disk.path", "cache")],
        &["cache.disk.capacity: missing; write for example capacity = \"250GiB\""],
    );
    check(
        &[("cache.disk.path", "secret"), ("cache.disk.capacity", "1GiB")],
        &["cache.disk.path: BASE/secret is not a folder"],
    );
}

#[test]
fn a_dataset_names_an_origin_that_is_there_and_a_bucket() {
    check(
        &[("dataset.d.origin", "oo")],
        &["dataset.d.origin: there is no origin \"oo\"; did you mean \"o\"?"],
    );
    check(
        &[("dataset.e.prefix", "x")],
        &[
            "dataset.e.origin: missing; write for example origin = \"NAME\", with NAME of a section [origin.NAME]",
            "dataset.e.bucket: missing; write for example bucket = \"train-data\", or \"*\" for every bucket",
        ],
    );
}

#[test]
fn datasets_that_overlap_are_refused() {
    check(
        &[("dataset.e.origin", "o"), ("dataset.e.bucket", "train")],
        &[
            "dataset: datasets d and e cover the same bucket and prefix; give one a longer prefix or another bucket",
        ],
    );
    check(
        &[("dataset.e.origin", "o"), ("dataset.e.bucket", "train"), ("dataset.e.prefix", "x/")],
        &[],
    );
}

#[test]
fn blocks_are_powers_of_two_within_bounds() {
    for block in ["100KiB", "32KiB", "32MiB", "0"] {
        check(
            &[("dataset.d.block", block)],
            &["dataset.d.block: must be a power of two from 64KiB to 16MiB"],
        );
    }
    check(&[("dataset.d.block", "64KiB")], &[]);
    check(&[("dataset.d.block", "16MiB")], &[]);
}

#[test]
fn an_immutable_dataset_cannot_be_written() {
    let flags = [("dataset.d.freshness", "immutable"), ("dataset.d.access", "read-write")];
    check(
        &flags,
        &[
            "dataset.d.freshness: \"immutable\" promises that objects never change, so access cannot be \"read-write\"",
        ],
    );
    check(&[flags[0]], &[]);
    check(&[flags[1]], &[]);
}

#[test]
fn words_with_fixed_meanings_are_checked() {
    check(
        &[("dataset.d.freshness", "fresh")],
        &[
            "dataset.d.freshness: \"fresh\" must be \"immutable\", \"strict\" or a duration such as \"60s\"",
        ],
    );
    check(
        &[("dataset.d.freshness", "0s")],
        &["dataset.d.freshness: a bound of zero is \"strict\""],
    );
    check(
        &[("dataset.d.access", "write")],
        &["dataset.d.access: \"write\" must be \"read\" or \"read-write\""],
    );
    check(
        &[("dataset.d.list_cache", "0s")],
        &["dataset.d.list_cache: a listing is kept for no time without this; leave it out"],
    );
    check(
        &[("dataset.d.admit_writes", "true")],
        &[
            "dataset.d.admit_writes: nothing is written to a dataset whose access is \"read\"; leave this out, or set access = \"read-write\"",
        ],
    );
    check(
        &[("dataset.d.policy", "lur")],
        &["dataset.d.policy: there is no policy \"lur\"; did you mean \"lru\"?"],
    );
}

#[test]
fn what_belongs_to_later_versions_is_refused_by_its_name() {
    let text = format!("{GOOD}[cluster]\nname = \"training\"\ntls = {{ cert = \"x\" }}\n");
    assert_eq!(
        read(&text, &[], false).unwrap_err(),
        [
            "cluster: not in this version; leave the section out; a node of this version stands alone"
        ]
    );
    check(
        &[("dataset.d.replicas", "2")],
        &[
            "dataset.d.replicas: not in this version; a node of this version stands alone; write replicas = 1",
        ],
    );
    check(&[("dataset.d.replicas", "1")], &[]);
    check(
        &[("dataset.d.policy", "auto")],
        &[
            "dataset.d.policy: not in this version; \"auto\" comes later; the policies are keep, lru",
        ],
    );
    let text = GOOD.replace(
        "bucket = \"train\"",
        "bucket = \"train\"\npolicy = { plugin = \"x.wasm\", config = { window = \"5\" } }",
    );
    assert_eq!(
        read(&text, &[], false).unwrap_err(),
        ["dataset.d.policy: not in this version; plugins come later; the policies are keep, lru"]
    );
}

#[test]
fn grants_name_datasets_that_are_there() {
    check(
        &[("key.K.allow", "[\"dd:read\"]")],
        &["key.K.allow.0: there is no dataset \"dd\"; did you mean \"d\"?"],
    );
    check(
        &[("key.K.allow", "[\"d:read\", \"d\"]")],
        &["key.K.allow.1: \"d\" must be \"DATASET:read\" or \"DATASET:read-write\""],
    );
    check(
        &[("key.K.allow", "[]")],
        &["key.K.allow: missing; write for example allow = [\"imagenet:read\"]"],
    );
}

#[test]
fn a_client_key_has_a_secret_that_can_be_found_and_not_guessed() {
    check(
        &[("key.K.secret", "file:nowhere")],
        &["key.K.secret: cannot read BASE/nowhere: No such file or directory (os error 2)"],
    );
    check(&[("key.K.secret", "file:short")], &["key.K.secret: a secret has at least 8 characters"]);
    check(
        &[("key.K.secret", "env:NOT_THERE")],
        &["key.K.secret: environment variable NOT_THERE is not set, or is empty"],
    );
}

#[test]
fn a_node_without_keys_starts_only_anonymous_and_on_loopback() {
    let text = GOOD.split("[key.K]").next().unwrap();
    assert_eq!(
        read(text, &[], false).unwrap_err(),
        [
            "key: no access key: clients could not sign. Add [key.ID] with secret and allow, or start with --insecure-anonymous on loopback"
        ]
    );
    assert!(read(text, &[], true).is_ok());
    let flags = [("listen.s3", "0.0.0.0:9000")];
    assert_eq!(
        read(text, &flags, true).unwrap_err(),
        [
            "listen: --insecure-anonymous lets anybody in, so listen.s3 and listen.admin must both be loopback addresses"
        ]
    );
}

#[test]
fn a_value_that_did_not_fit_is_not_missing_as_well() {
    let text = GOOD.replace("file:secret", "hunter2");
    let errors = read(&text, &[], false).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("key.K.secret: must be a reference"), "{errors:?}");
}

#[test]
fn an_empty_configuration_says_what_is_needed() {
    let errors = read("", &[], false).unwrap_err();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].starts_with("dataset: no dataset"));
    assert!(errors[1].starts_with("key: no access key"));
}

#[test]
fn what_is_shown_is_the_same_configuration_and_no_secret() {
    let dir = folder();
    let flags = [
        ("origin.s.kind", "s3"),
        ("origin.s.endpoint", "https://s3.example.com/"),
        ("origin.s.access_key_id", "AKID"),
        ("origin.s.secret_access_key", "file:secret"),
        ("origin.s.session_token", "file:secret"),
        ("admin.token", "file:secret"),
        ("dataset.d.freshness", "90s"),
        ("dataset.d.quota.memory", "64MiB"),
        ("dataset.d.access", "read-write"),
        ("dataset.d.list_cache", "2s"),
        ("dataset.d.admit_writes", "true"),
    ];
    let config = Config::read(&layers(GOOD, &flags), dir.path(), false).unwrap();
    let shown = config.show().unwrap();
    assert!(shown.contains("list_cache = \"2s\""), "{shown}");
    assert!(shown.contains("admit_writes = true"), "{shown}");
    assert!(shown.contains("secret_access_key = \"file:secret\""), "{shown}");
    assert!(shown.contains("freshness = \"1m 30s\""), "{shown}");
    assert!(!shown.contains("canary") && !format!("{config:?}").contains("canary"));
    let again = Config::read(&layers(&shown, &[]), dir.path(), false).unwrap();
    assert_eq!(again.show().unwrap(), shown);
}

#[test]
fn pools_share_out_the_cache() {
    let flags = [
        ("cache.disk.path", "cache"),
        ("cache.disk.capacity", "10GiB"),
        ("dataset.e.origin", "o"),
        ("dataset.e.bucket", "other"),
        ("dataset.e.block", "4MiB"),
        ("dataset.e.quota.memory", "64MiB"),
        ("dataset.e.quota.disk", "2GiB"),
    ];
    let config = read(GOOD, &flags, false).unwrap();
    let pools = config.pools();
    let own = pools.iter().find(|pool| pool.name.as_str() == "e").unwrap();
    let shared = pools.iter().find(|pool| pool.name.as_str() == "@shared").unwrap();
    assert_eq!((own.memory_bytes, own.disk_bytes), (64 << 20, 2 << 30));
    assert_eq!(own.max_block_bytes, 4 << 20);
    // Half of limits.memory, or less where the SSD's write buffers need the room.
    assert!(config.cache.memory_bytes <= 512 << 20, "{}", config.cache.memory_bytes);
    assert_eq!(own.memory_bytes + shared.memory_bytes, config.cache.memory_bytes);
    assert!(config.block_budget_bytes() > config.cache.memory_bytes);
    let files: u64 = pools.iter().map(larder_store::device_bytes).sum();
    assert!(files <= 10 << 30, "{files}");
    assert!(files > 9 << 30, "{files}");
    assert_eq!(pools.len(), 2);
}
