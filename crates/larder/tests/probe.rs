//! `larder origin probe` through the real binary, against a small endpoint of the test.

#[cfg(test)]
mod probe {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::PathBuf;
    use std::process::{Command, Output};
    use std::sync::{Arc, Mutex};
    use std::thread::spawn;

    /// A request as far as the endpoint looks at it.
    struct Asked {
        method: String,
        target: String,
        key_id: String,
        token: Option<String>,
    }

    /// Key id and session token of a request.
    type Signer = (String, Option<String>);

    /// An endpoint that holds one bucket with two objects, and takes the keys of one id.
    #[derive(Clone)]
    struct Endpoint {
        address: String,
        asked: Arc<Mutex<Vec<Signer>>>,
    }

    impl Endpoint {
        fn start(key_id: &'static str, broken: bool) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let endpoint = Self { address, asked: Arc::default() };
            let shared = endpoint.clone();
            spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    let shared = shared.clone();
                    spawn(move || shared.serve(stream, key_id, broken));
                }
            });
            endpoint
        }

        fn serve(&self, stream: TcpStream, key_id: &str, broken: bool) {
            let mut input = BufReader::new(stream.try_clone().unwrap());
            let mut output = stream;
            while let Some(asked) = request(&mut input) {
                let (status, body) = answer(&asked, key_id, broken);
                self.asked.lock().unwrap().push((asked.key_id, asked.token));
                let body = if status == 204 { String::new() } else { body };
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-length: {}\r\netag: \"ABC0\"\r\n\
                     x-oss-request-id: 1\r\n\r\n",
                    body.len()
                );
                let body = if asked.method == "HEAD" { "" } else { &body };
                if output.write_all(format!("{head}{body}").as_bytes()).is_err() {
                    return;
                }
            }
        }
    }

    fn request(input: &mut impl BufRead) -> Option<Asked> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if input.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.trim_end().is_empty() {
                break;
            }
            lines.push(line.trim_end().to_owned());
        }
        let header = |name: &str| {
            lines.iter().filter_map(|line| line.split_once(": ")).find_map(|(known, value)| {
                known.eq_ignore_ascii_case(name).then(|| value.to_owned())
            })
        };
        let length = header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        input.read_exact(&mut body).ok()?;
        let authorization = header("authorization").unwrap_or_default();
        let (_, rest) = authorization.split_once("Credential=").unwrap_or_default();
        let mut start = lines.first()?.split(' ').map(str::to_owned);
        Some(Asked {
            method: start.next()?,
            target: start.next()?,
            key_id: rest.split('/').next().unwrap_or_default().to_owned(),
            token: header("x-amz-security-token"),
        })
    }

    fn answer(asked: &Asked, key_id: &str, broken: bool) -> (u16, String) {
        let Asked { method, target, .. } = asked;
        if target.starts_with("/credentials") {
            // As the service of a container tells them.
            let keys = "{\"AccessKeyId\":\"FROMCONTAINER\",\"SecretAccessKey\":\"canary-container\",\
                        \"Token\":\"canary-token\",\"Expiration\":\"2099-01-01T00:00:00Z\"}";
            return (200, keys.to_owned());
        }
        if asked.key_id != key_id {
            return (403, "<Error><Code>InvalidAccessKeyId</Code></Error>".to_owned());
        }
        let page = "<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>a</Key>\
                    </Contents></ListBucketResult>";
        match (method.as_str(), target.split('?').next().unwrap()) {
            ("GET", "/") => (200, "<X><Bucket><Name>pail</Name></Bucket></X>".to_owned()),
            ("GET", "/pail") if target.contains("versions") => (501, String::new()),
            ("GET", "/pail") => (200, page.to_owned()),
            ("DELETE", _) if broken => (403, "<Error><Code>AccessDenied</Code></Error>".to_owned()),
            ("DELETE", _) => (204, String::new()),
            _ => (200, String::new()),
        }
    }

    /// A folder with a configuration that names the endpoint as origin `o`.
    struct Home(tempfile::TempDir);

    impl Home {
        fn new(endpoint: &str, keys: &str) -> Self {
            let home = tempfile::tempdir().unwrap();
            std::fs::write(home.path().join("secret"), "canary-of-a-file").unwrap();
            std::fs::create_dir(home.path().join("data")).unwrap();
            let text = format!(
                "[origin.o]\nkind = \"s3\"\nendpoint = \"http://{endpoint}\"\nattempts = 1\n{keys}\n\
                 [origin.d]\nkind = \"directory\"\npath = \"data\"\n\
                 [dataset.d]\norigin = \"o\"\nbucket = \"*\"\n\
                 [key.K]\nsecret = \"file:secret\"\nallow = [\"d:read\"]\n"
            );
            std::fs::write(home.path().join("larder.toml"), text).unwrap();
            Self(home)
        }

        fn given(endpoint: &Endpoint) -> Self {
            let keys = "access_key_id = \"GIVEN\"\nsecret_access_key = \"file:secret\"";
            Self::new(&endpoint.address, keys)
        }

        fn run(&self, arguments: &[&str], env: &[(&str, &str)]) -> Output {
            let file: PathBuf = self.0.path().join("larder.toml");
            let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
            for (name, _) in std::env::vars_os() {
                let name = name.to_string_lossy().into_owned();
                if name.starts_with("LARDER_") || name.starts_with("AWS_") {
                    command.env_remove(name);
                }
            }
            command.args(["origin", "probe"]).args(arguments).arg("--config").arg(file);
            // Nothing of the machine's own, and no question to the network about it.
            command.env("HOME", self.0.path()).env("AWS_EC2_METADATA_DISABLED", "true");
            command.envs(env.iter().copied()).output().unwrap()
        }
    }

    fn text(bytes: &[u8]) -> String {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert!(!text.contains("canary"), "{text}");
        text
    }

    #[test]
    fn a_table_and_the_lines_to_set_are_printed() {
        let endpoint = Endpoint::start("GIVEN", false);
        let output = Home::given(&endpoint).run(&["o"], &[]);
        let table = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let first = format!("origin o  http://{}  bucket pail\n\nQUESTION", endpoint.address);
        assert!(table.starts_with(&first), "{table}");
        let answer = |subject: &str| {
            let line = table.lines().find(|line| line.starts_with(subject)).unwrap();
            line[subject.len()..].split_whitespace().next().unwrap().to_owned()
        };
        assert_eq!(answer("keys accepted"), "yes");
        assert_eq!(answer("bucket in the path"), "yes");
        assert_eq!(answer("bucket in the host name"), "unknown");
        assert_eq!(answer("ListObjectsV2 with tokens"), "no");
        assert_eq!(answer("If-Match on GET"), "no");
        assert_eq!(answer("ETag in lower case"), "no");
        let lines = "\n[origin.o]\nkind = \"oss\"  # not as configured\naddressing = \"path\"\n\
                     region = \"us-east-1\"\n";
        assert!(table.ends_with(lines), "{table}");
    }

    #[test]
    fn json_says_the_same_and_writes_are_asked_for() {
        let endpoint = Endpoint::start("GIVEN", false);
        let output =
            Home::given(&endpoint).run(&["o", "--bucket", "pail", "--write", "--json"], &[]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let json: serde_json::Value = serde_json::from_str(&text(&output.stdout)).unwrap();
        assert_eq!(json["bucket"], "pail");
        assert_eq!(json["usable"], true);
        assert_eq!(json["settings"]["kind"], "oss");
        assert_eq!(json["left_behind"], serde_json::Value::Null);
        let findings = json["findings"].as_array().unwrap();
        let answer = |subject: &str| {
            findings.iter().find(|finding| finding["subject"] == subject).unwrap()["answer"].clone()
        };
        assert_eq!(answer("UNSIGNED-PAYLOAD"), "yes");
        assert_eq!(answer("checksum as a trailer"), "no");
        assert_eq!(answer("probe object deleted"), "yes");
    }

    #[test]
    fn what_cannot_be_used_or_cleared_ends_with_1() {
        let broken = Endpoint::start("GIVEN", true);
        let output = Home::given(&broken).run(&["o", "--bucket", "pail", "--write"], &[]);
        assert_eq!(output.status.code(), Some(1));
        let told = text(&output.stderr);
        assert!(told.contains("error: object larder-probe-"), "{told}");
        assert!(told.contains("could not be deleted from bucket pail"), "{told}");

        let strict = Endpoint::start("OTHER", false);
        let output = Home::given(&strict).run(&["o", "--bucket", "pail"], &[]);
        assert_eq!(output.status.code(), Some(1));
        let table = text(&output.stdout);
        assert!(table.contains("keys accepted"), "{table}");
        assert!(!table.contains("[origin.o]"), "{table}");
        assert!(text(&output.stderr).contains("origin o cannot be asked as it is configured"));
    }

    #[test]
    fn what_is_no_endpoint_ends_with_2() {
        let endpoint = Endpoint::start("GIVEN", false);
        let home = Home::given(&endpoint);
        let output = home.run(&["x"], &[]);
        assert_eq!(output.status.code(), Some(2));
        let told = text(&output.stderr);
        assert!(told.contains("origin.x: there is no such origin; there are d, o"), "{told}");
        let output = home.run(&["d"], &[]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("origin.d: is a folder of this machine"));
        assert_eq!(home.run(&["o", "--bucket", "/"], &[]).status.code(), Some(2));
        assert!(endpoint.asked.lock().unwrap().is_empty());
    }

    #[test]
    fn keys_of_the_default_chain_come_from_the_environment_or_the_container() {
        let environment = [
            ("AWS_ACCESS_KEY_ID", "FROMENVIRONMENT"),
            ("AWS_SECRET_ACCESS_KEY", "canary-environment"),
            ("AWS_SESSION_TOKEN", "canary-token"),
        ];
        let endpoint = Endpoint::start("FROMENVIRONMENT", false);
        let home = Home::new(&endpoint.address, "credentials = \"default\"");
        let output = home.run(&["o"], &environment);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout);
        let expected = ("FROMENVIRONMENT".to_owned(), Some("canary-token".to_owned()));
        assert!(endpoint.asked.lock().unwrap().iter().all(|asked| *asked == expected));

        let endpoint = Endpoint::start("FROMCONTAINER", false);
        let home = Home::new(&endpoint.address, "credentials = \"default\"");
        let service = format!("http://{}/credentials", endpoint.address);
        let container = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.as_str())];
        let output = home.run(&["o"], &container);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let asked = endpoint.asked.lock().unwrap();
        let expected = ("FROMCONTAINER".to_owned(), Some("canary-token".to_owned()));
        // Keys that are good for long are looked up once.
        assert_eq!(asked[0], (String::new(), None));
        assert!(asked.len() > 3 && asked[1..].iter().all(|asked| *asked == expected));
    }

    #[test]
    fn a_chain_without_keys_is_a_finding() {
        let endpoint = Endpoint::start("NOBODY", false);
        let home = Home::new(&endpoint.address, "credentials = \"default\"");
        let output = home.run(&["o", "--bucket", "pail"], &[]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("no keys for it"));
        assert!(endpoint.asked.lock().unwrap().is_empty());
    }
}
