//! The real binary, started as a person would start it: what it prints, what its listeners answer,
//! how it ends.
//!
//! Not here: S3 clients and signatures; those are in the workspace's `tests` package.

#[cfg(test)]
mod binary {
    use rustix::process::{Pid, Signal, kill_process};
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::path::Path;
    use std::process::{Child, Command, Output, Stdio};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn larder(arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.args(arguments);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LARDER_") {
                command.env_remove(name);
            }
        }
        command
    }

    fn run(arguments: &[&str]) -> Output {
        larder(arguments).output().unwrap()
    }

    fn stdout(output: &Output) -> String {
        String::from_utf8(output.stdout.clone()).unwrap()
    }

    fn stderr(output: &Output) -> String {
        String::from_utf8(output.stderr.clone()).unwrap()
    }

    /// A running node; killed if the test forgets it.
    struct Node {
        child: Child,
        lines: Receiver<String>,
        endpoint: String,
        admin: String,
    }

    impl Node {
        /// Starts a node over `dir` on ports of the kernel's choice, its log in `dir`'s neighbour.
        fn start(dir: &Path, more: &[&str], env: &[(&str, &str)]) -> Self {
            let log = std::fs::File::create(dir.with_extension("log")).unwrap();
            let ports = ["--listen", "127.0.0.1:0", "--listen-admin", "127.0.0.1:0"];
            let mut command = larder(&["serve", "--origin", dir.to_str().unwrap()]);
            command.args(ports).args(more).envs(env.iter().copied());
            let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
            let (tell, lines) = channel();
            let output = BufReader::new(child.stdout.take().unwrap());
            std::thread::spawn(move || {
                for line in output.lines().map_while(Result::ok) {
                    let _nobody_listens_any_more = tell.send(line);
                }
            });
            let mut node = Self { child, lines, endpoint: String::new(), admin: String::new() };
            node.endpoint = node.line("s3 endpoint: http://");
            node.admin = node.line("admin: http://");
            node
        }

        /// The next line, which must begin like this; without its beginning.
        fn line(&self, beginning: &str) -> String {
            let line = self.lines.recv_timeout(PATIENCE).unwrap();
            line.strip_prefix(beginning).unwrap_or_else(|| panic!("{line:?}")).to_owned()
        }

        fn signal(&self, signal: Signal) {
            kill_process(Pid::from_child(&self.child), signal).unwrap();
        }

        /// Waits for the end; tells the exit code.
        fn end(&mut self) -> Option<i32> {
            let deadline = Instant::now() + PATIENCE;
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status.code();
                }
                assert!(Instant::now() < deadline, "the node does not end");
                std::thread::yield_now();
            }
        }
    }

    impl Drop for Node {
        fn drop(&mut self) {
            let _ended_already = self.child.kill();
            let _nothing_to_do_about_it = self.child.wait();
        }
    }

    /// One GET on a connection of its own: head and body.
    fn get(address: &str, path: &str, header: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let at = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        (String::from_utf8(answer[..at].to_vec()).unwrap(), answer[at + 4..].to_vec())
    }

    fn text(address: &str, path: &str) -> (String, String) {
        let (head, body) = get(address, path, "");
        (head, String::from_utf8(body).unwrap())
    }

    /// This second as S3 signs it, `20260131T235959Z`.
    #[expect(clippy::disallowed_methods, reason = "signatures are of the real time")]
    fn now() -> String {
        let now = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
        now.replace(['-', ':'], "")
    }

    #[test]
    fn a_node_over_a_new_folder_says_how_to_reach_it_and_ends_when_told() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("data");
        let mut node = Node::start(&dir, &[], &[]);
        let id = node.line("access key: ");
        let secret = node.line("secret key: ");
        let example = node.line("try: ");
        assert!(
            example.contains(&format!("AWS_ACCESS_KEY_ID={id} AWS_SECRET_ACCESS_KEY={secret}"))
        );
        assert!(
            example.ends_with(&format!("--endpoint-url http://{}", node.endpoint)),
            "{example}"
        );
        assert!(dir.join("samples/hello.txt").is_file());

        assert!(text(&node.admin, "/healthz").0.starts_with("HTTP/1.1 200"));
        let deadline = Instant::now() + PATIENCE;
        while !text(&node.admin, "/readyz").0.starts_with("HTTP/1.1 200") {
            assert!(Instant::now() < deadline, "the node does not become ready");
        }
        let (head, _) = text(&node.endpoint, "/samples/hello.txt");
        assert!(head.starts_with("HTTP/1.1 403"), "{head}");
        node.signal(Signal::TERM);
        assert_eq!(node.end(), Some(0));
    }

    /// A node that has begun to answer a GET of `bytes` zeros, of which nothing has been read.
    fn with_a_started_answer(home: &Path, bytes: usize) -> (Node, TcpStream) {
        let dir = home.join("data");
        std::fs::create_dir_all(dir.join("bucket")).unwrap();
        std::fs::write(dir.join("bucket/zeros"), vec![0; bytes]).unwrap();
        let node = Node::start(&dir, &["--insecure-anonymous"], &[]);
        let mut stream = TcpStream::connect(&node.endpoint).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = "GET /bucket/zeros HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        assert_eq!(stream.peek(&mut [0]).unwrap(), 1);
        node.signal(Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while !text(&node.admin, "/readyz").0.starts_with("HTTP/1.1 503") {
            assert!(Instant::now() < deadline, "the node stays ready");
        }
        (node, stream)
    }

    #[test]
    fn a_started_answer_ends_after_sigterm_while_the_node_is_no_longer_ready() {
        let home = tempfile::tempdir().unwrap();
        let bytes = 64 << 20;
        let (mut node, mut stream) = with_a_started_answer(home.path(), bytes);
        assert_eq!(text(&node.admin, "/readyz").1, "draining\n");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let at = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"));
        assert_eq!(answer.len() - at - 4, bytes);
        assert_eq!(node.end(), Some(0));
    }

    #[test]
    fn a_second_signal_ends_the_node_at_once() {
        let home = tempfile::tempdir().unwrap();
        let (mut node, _unread) = with_a_started_answer(home.path(), 64 << 20);
        node.signal(Signal::TERM);
        assert_eq!(node.end(), Some(130));
    }

    #[test]
    fn metrics_and_status_tell_what_was_served() {
        let home = tempfile::tempdir().unwrap();
        let node = Node::start(&home.path().join("data"), &["--insecure-anonymous"], &[]);
        assert!(node.line("access key: ").starts_with("none"));
        for source in ["origin", "memory"] {
            let (head, body) = get(&node.endpoint, "/samples/noise.bin", "");
            assert!(head.contains(&format!("x-larder-cache: {source}")), "{head}");
            assert_eq!(body, std::fs::read(home.path().join("data/samples/noise.bin")).unwrap());
        }
        let (_, metrics) = text(&node.admin, "/metrics");
        for line in [
            "larder_served_bytes_total{dataset=\"local\",source=\"memory\"} 1048576",
            "larder_served_bytes_total{dataset=\"local\",source=\"origin\"} 1048576",
            "larder_origin_bytes_total{dataset=\"local\"} 1048576",
            "larder_freshness_bound_seconds{dataset=\"local\"} 0",
            "larder_build_info{version=",
            "larder_requests_total{dataset=\"local\"",
            "larder_request_duration_seconds_bucket",
            "larder_misses_total{cause=",
            "larder_origin_requests_total{",
            "larder_cached_bytes{dataset=\"local\",tier=",
            "larder_cached_objects{dataset=\"local\"} 1",
            "larder_in_flight_bytes ",
            "process_resident_memory_bytes ",
        ] {
            assert!(metrics.contains(&format!("\n{line}")), "{line} is not in\n{metrics}");
        }

        let admin = format!("http://{}", node.admin);
        let table = run(&["status", "--admin", &admin]);
        assert!(table.status.success(), "{}", stderr(&table));
        let table = stdout(&table);
        assert!(table.contains("NAME   CACHED"), "{table}");
        assert!(table.lines().last().unwrap().starts_with("local  1.0 MiB"), "{table}");
        let json = stdout(&run(&["status", "--admin", &admin, "--json"]));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let dataset = &json["datasets"][0];
        assert_eq!(json["phase"], "ready");
        assert_eq!(dataset["name"], "local");
        assert_eq!(dataset["hit_ratio"], 0.5);
        assert_eq!(dataset["origin_bytes"], 1_048_576);
        assert_eq!(dataset["freshness"], "strict");
    }

    #[test]
    fn no_secret_is_logged_shown_or_exported_even_at_trace() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("data");
        let env = [
            ("CANARY", "canary-secret-of-a-key"),
            ("TOKEN", "canary-token"),
            ("LARDER_KEY__MINE__SECRET", "env:CANARY"),
            ("LARDER_KEY__MINE__ALLOW", "[local:read]"),
            ("LARDER_ADMIN__TOKEN", "env:TOKEN"),
        ];
        let mut node = Node::start(&dir, &["--log-level", "trace", "--log", "json"], &env);
        assert_eq!(node.line("access key: "), "MINE");
        let (date, signature) = (now(), "ca0a11".repeat(11)[..64].to_owned());
        let authorization = format!(
            "Authorization: AWS4-HMAC-SHA256 Credential=MINE/{}/us-east-1/s3/aws4_request, \
             SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={signature}\r\n\
             x-amz-date: {date}\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\n",
            &date[..8]
        );
        let (head, body) = get(&node.endpoint, "/samples/hello.txt", &authorization);
        assert!(head.starts_with("HTTP/1.1 403"), "{head}");
        let (refused, _) = get(&node.admin, "/metrics", "Authorization: Bearer canary-wrong\r\n");
        assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
        let (allowed, metrics) =
            get(&node.admin, "/metrics", "Authorization: Bearer canary-token\r\n");
        assert!(allowed.starts_with("HTTP/1.1 200"), "{allowed}");
        node.signal(Signal::INT);
        assert_eq!(node.end(), Some(0));
        let log = std::fs::read_to_string(dir.with_extension("log")).unwrap();
        assert!(log.contains("draining"), "{log}");
        let body = String::from_utf8(body).unwrap();
        assert!(body.contains("SignatureDoesNotMatch"), "{body}");
        let metrics = String::from_utf8(metrics).unwrap();
        for text in [&log, &body, &metrics] {
            assert!(!text.contains("canary") && !text.contains("ca0a11ca0a11"), "{text}");
        }
    }

    #[test]
    fn a_wrong_configuration_ends_with_2_and_all_its_problems() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("larder.toml");
        std::fs::write(&file, "[listen]\ns4 = \"x\"\n[limits]\nmemory = \"much\"\n").unwrap();
        for command in [&["config", "check"][..], &["config", "show"], &["serve"]] {
            let arguments = [command, &["--config", file.to_str().unwrap()]].concat();
            let output = run(&arguments);
            assert_eq!(output.status.code(), Some(2), "{command:?}");
            let told = stderr(&output);
            assert!(told.contains("larder.toml:2: listen.s4: unknown key"), "{told}");
            assert!(told.contains("larder.toml:4: limits.memory: \"much\" is not"), "{told}");
            assert!(stdout(&output).is_empty());
        }
        assert_eq!(run(&["serve"]).status.code(), Some(2));
        assert_eq!(run(&["serve", "--config", "/nowhere.toml"]).status.code(), Some(2));
        assert_eq!(run(&["bake"]).status.code(), Some(2));
        assert_eq!(run(&["--help"]).status.code(), Some(0));
    }

    #[test]
    fn the_shipped_configurations_are_good() {
        let home = tempfile::tempdir().unwrap();
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
        std::fs::create_dir(home.path().join("data")).unwrap();
        for secret in ["origin", "trainer", "admin"] {
            std::fs::create_dir_all(home.path().join("secrets")).unwrap();
            std::fs::write(home.path().join("secrets").join(secret), "canary-of-a-file").unwrap();
        }
        for name in ["example.toml", "minimal.toml"] {
            let file = home.path().join(name);
            std::fs::copy(shipped.join(name), &file).unwrap();
            let show = |action| {
                let arguments = ["config", action, "--config", file.to_str().unwrap()];
                larder(&arguments).env("ORIGIN_KEY_ID", "AKID").output().unwrap()
            };
            let checked = show("check");
            assert!(checked.status.success(), "{name}: {}", stderr(&checked));
            let shown = stdout(&show("show"));
            assert!(shown.contains("secret = \"file:"), "{shown}");
            assert!(!shown.contains("canary"), "{shown}");
        }
    }

    #[test]
    fn an_address_in_use_is_a_failure_that_names_its_key() {
        let home = tempfile::tempdir().unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let dir = home.path().join("data");
        let dir = dir.to_str().unwrap();
        let output = run(&["serve", "--origin", dir, "--listen", &address]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("listen.s3: cannot listen on"), "{}", stderr(&output));
    }

    #[test]
    fn a_changed_secret_is_used_without_a_restart() {
        let home = tempfile::tempdir().unwrap();
        let token = home.path().join("token");
        std::fs::write(&token, "first-token").unwrap();
        let reference = format!("file:{}", token.display());
        let env = [("LARDER_ADMIN__TOKEN", reference.as_str())];
        let node = Node::start(&home.path().join("data"), &[], &env);
        let admitted = |token: &str| {
            let header = format!("Authorization: Bearer {token}\r\n");
            get(&node.admin, "/v1/status", &header).0.starts_with("HTTP/1.1 200")
        };
        assert!(admitted("first-token"));
        std::fs::write(&token, "second-token\n").unwrap();
        let deadline = Instant::now() + PATIENCE;
        while !admitted("second-token") {
            assert!(Instant::now() < deadline, "the new token is not taken");
        }
        assert!(!admitted("first-token"));
    }
}
