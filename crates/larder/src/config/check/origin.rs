//! The rules of `[origin.NAME]`.

use super::Check;
use crate::config::secret::IdRef;
use crate::config::shape::OriginShape;
use crate::config::{Ca, GivenKeys, Id, OriginKeys, OriginKind, OriginRule, S3Rule};
use larder_model::OriginName;
use larder_origin::{Addressing, Dialect, check_ca};
use std::collections::BTreeMap;
use std::time::Duration;

impl Check<'_> {
    pub(super) fn origins(&mut self, shapes: &BTreeMap<String, OriginShape>) -> Vec<OriginRule> {
        let mut origins = Vec::new();
        for (name, shape) in shapes {
            let kind = self.origin_kind(name, shape);
            match OriginName::new(name) {
                Ok(name) => origins.extend(kind.map(|kind| OriginRule { name, kind })),
                Err(error) => self.problem(&["origin", name], error.to_string()),
            }
        }
        origins
    }

    fn origin_kind(&mut self, name: &str, shape: &OriginShape) -> Option<OriginKind> {
        let key = ["origin", name, "kind"];
        let dialect = match shape.kind.as_deref() {
            Some("s3") => Dialect::S3,
            Some("oss") => Dialect::Oss,
            Some("bos") => Dialect::Bos,
            Some("directory") => return self.directory(name, shape),
            Some(kind) => {
                let message = format!("{kind:?} is not a kind; they are s3, oss, bos, directory");
                self.problem(&key, message);
                return None;
            }
            None => {
                self.missing(&key, "kind = \"s3\"");
                return None;
            }
        };
        self.s3(name, dialect, shape).map(|rule| OriginKind::S3(Box::new(rule)))
    }

    fn directory(&mut self, name: &str, shape: &OriginShape) -> Option<OriginKind> {
        for (key, given) in s3_keys(shape) {
            if given {
                self.problem(&["origin", name, key], "does not apply to kind = \"directory\"");
            }
        }
        let key = ["origin", name, "path"];
        let Some(path) = &shape.path else {
            self.missing(&key, "path = \"./data\"");
            return None;
        };
        let path = self.path(path);
        if !path.is_dir() {
            self.problem(&key, format!("{} is not a folder that is there", path.display()));
            return None;
        }
        Some(OriginKind::Directory(path))
    }

    fn s3(&mut self, name: &str, dialect: Dialect, shape: &OriginShape) -> Option<S3Rule> {
        if shape.path.is_some() {
            self.problem(&["origin", name, "path"], "applies to kind = \"directory\" only");
        }
        let endpoint = self.endpoint(name, dialect, shape.endpoint.as_deref());
        let region = self.region(name, dialect, shape);
        let addressing = self.addressing(name, dialect, shape.addressing.as_deref());
        let keys = self.origin_keys(name, shape);
        let ca = self.ca(name, shape.ca.as_deref(), endpoint.as_deref());
        let at_least_one = [
            ("max_requests_per_second", shape.max_requests_per_second),
            ("max_requests_in_flight", shape.max_requests_in_flight),
            ("attempts", shape.attempts),
        ];
        for (key, _) in at_least_one.iter().filter(|(_, value)| *value == Some(0)) {
            self.problem(&["origin", name, key], "must be at least 1");
        }
        let times = [
            ("connect_timeout", shape.connect_timeout, 5),
            ("answer_timeout", shape.answer_timeout, 30),
            ("idle_timeout", shape.idle_timeout, 20),
        ];
        let [connect_timeout, answer_timeout, idle_timeout] =
            times.map(|(key, span, default_s)| {
                let time = span.map_or(Duration::from_secs(default_s), |span| span.0);
                if time.is_zero() {
                    self.problem(&["origin", name, key], "must be longer than 0s");
                }
                time
            });
        Some(S3Rule {
            dialect,
            endpoint: endpoint?,
            region: region?,
            addressing,
            keys: keys?,
            ca,
            max_requests_per_second: shape.max_requests_per_second,
            max_requests_in_flight: shape.max_requests_in_flight.unwrap_or(512),
            connect_timeout,
            answer_timeout,
            idle_timeout,
            attempts: shape.attempts.unwrap_or(5),
        })
    }

    fn endpoint(&mut self, name: &str, dialect: Dialect, endpoint: Option<&str>) -> Option<String> {
        let key = ["origin", name, "endpoint"];
        let Some(endpoint) = endpoint else {
            let example = match dialect {
                Dialect::S3 => "https://s3.us-east-1.amazonaws.com",
                Dialect::Oss => "https://s3.oss-cn-hangzhou-internal.aliyuncs.com",
                Dialect::Bos => "https://s3.bj.bcebos.com",
            };
            self.missing(&key, &format!("endpoint = {example:?}"));
            return None;
        };
        // A URL may hold credentials, so a refused one is not repeated.
        let valid = endpoint.parse::<http::Uri>().is_ok_and(|uri| {
            let scheme = uri.scheme_str();
            let host = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
            matches!(scheme, Some("http" | "https"))
                && host
                && matches!(uri.path(), "" | "/")
                && uri.query().is_none()
        });
        if !valid {
            self.problem(&key, "must be http:// or https://, a host, perhaps a port, nothing more");
            return None;
        }
        Some(endpoint.trim_end_matches('/').to_owned())
    }

    /// The region in the signature's scope. OSS and BOS have no default one, but their endpoints
    /// name it.
    fn region(&mut self, name: &str, dialect: Dialect, shape: &OriginShape) -> Option<String> {
        let key = ["origin", name, "region"];
        let host = shape.endpoint.as_deref().and_then(|url| url.parse::<http::Uri>().ok());
        let told = host.as_ref().and_then(|url| region_in(dialect, url.host()?));
        match (&shape.region, dialect) {
            (Some(region), Dialect::Oss) if region.starts_with("oss-") => {
                let bare = region.trim_start_matches("oss-");
                self.problem(&key, format!("signatures have the bare region; write {bare:?}"));
                None
            }
            (Some(region), _) if region.is_empty() => {
                self.problem(&key, "must not be empty");
                None
            }
            (Some(region), _) => Some(region.clone()),
            (None, Dialect::S3) => Some("us-east-1".to_owned()),
            (None, _) if told.is_some() => told,
            (None, Dialect::Oss) => {
                self.missing(&key, "region = \"cn-hangzhou\"");
                None
            }
            (None, Dialect::Bos) => {
                self.missing(&key, "region = \"bj\"");
                None
            }
        }
    }

    fn addressing(&mut self, name: &str, dialect: Dialect, addressing: Option<&str>) -> Addressing {
        match addressing {
            None => dialect.default_addressing(),
            Some("path") => Addressing::Path,
            Some("virtual") => Addressing::Virtual,
            Some(other) => {
                let message = format!("{other:?} must be \"path\" or \"virtual\"");
                self.problem(&["origin", name, "addressing"], message);
                Addressing::Path
            }
        }
    }

    fn origin_keys(&mut self, name: &str, shape: &OriginShape) -> Option<OriginKeys> {
        match shape.credentials.as_deref() {
            None => self.given_keys(name, shape),
            Some("default") => {
                let given = [
                    ("access_key_id", shape.access_key_id.is_some()),
                    ("secret_access_key", shape.secret_access_key.is_some()),
                    ("session_token", shape.session_token.is_some()),
                ];
                for (key, _) in given.iter().filter(|(_, given)| *given) {
                    let message = "does not go with credentials = \"default\"; leave out one";
                    self.problem(&["origin", name, key], message);
                }
                Some(OriginKeys::Default)
            }
            Some(other) => {
                let message = format!(
                    "{other:?} must be \"default\", or left out beside access_key_id and \
                     secret_access_key"
                );
                self.problem(&["origin", name, "credentials"], message);
                None
            }
        }
    }

    fn given_keys(&mut self, name: &str, shape: &OriginShape) -> Option<OriginKeys> {
        let id = self.access_key_id(name, shape.access_key_id.as_ref());
        let key = ["origin", name, "secret_access_key"];
        let secret = match &shape.secret_access_key {
            Some(reference) => self.secret(&key, reference),
            None => {
                self.missing(&key, "secret_access_key = \"file:/run/secrets/origin\"");
                None
            }
        };
        let session_token = match &shape.session_token {
            Some(reference) => Some(self.secret(&["origin", name, "session_token"], reference)?),
            None => None,
        };
        Some(OriginKeys::Given(Box::new(GivenKeys { id: id?, secret: secret?, session_token })))
    }

    fn access_key_id(&mut self, name: &str, id: Option<&IdRef>) -> Option<Id> {
        let key = ["origin", name, "access_key_id"];
        match id {
            Some(IdRef::Plain(id)) if !id.is_empty() => Some(Id::Plain(id.clone())),
            Some(IdRef::Ref(reference)) => self.secret(&key, reference).map(Id::Found),
            Some(IdRef::Plain(_)) | None => {
                self.missing(&key, "access_key_id = \"env:AWS_ACCESS_KEY_ID\"");
                None
            }
        }
    }

    fn ca(&mut self, name: &str, file: Option<&str>, endpoint: Option<&str>) -> Option<Ca> {
        let key = ["origin", name, "ca"];
        let path = self.path(file?);
        if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
            self.problem(&key, "applies to an endpoint that begins with https:// only");
        }
        match std::fs::read(&path) {
            Ok(pem) => {
                if let Err(reason) = check_ca(&pem) {
                    self.problem(&key, format!("{} cannot be used: {reason}", path.display()));
                }
                Some(Ca { path, pem })
            }
            Err(error) => {
                self.problem(&key, format!("cannot read {}: {error}", path.display()));
                None
            }
        }
    }
}

/// The region that the vendor's own endpoints name: `s3.oss-REGION[-internal].aliyuncs.com` and
/// `s3.REGION.bcebos.com`.
fn region_in(dialect: Dialect, host: &str) -> Option<String> {
    let region = match dialect {
        Dialect::S3 => None,
        Dialect::Oss => {
            let label = host.strip_prefix("s3.oss-")?.strip_suffix(".aliyuncs.com")?;
            Some(label.strip_suffix("-internal").unwrap_or(label))
        }
        Dialect::Bos => host.strip_prefix("s3.")?.strip_suffix(".bcebos.com"),
    };
    region.filter(|region| !region.is_empty() && !region.contains('.')).map(str::to_owned)
}

/// The keys that only an S3 endpoint has, and whether they are given.
fn s3_keys(shape: &OriginShape) -> [(&'static str, bool); 14] {
    [
        ("endpoint", shape.endpoint.is_some()),
        ("region", shape.region.is_some()),
        ("addressing", shape.addressing.is_some()),
        ("access_key_id", shape.access_key_id.is_some()),
        ("secret_access_key", shape.secret_access_key.is_some()),
        ("session_token", shape.session_token.is_some()),
        ("credentials", shape.credentials.is_some()),
        ("ca", shape.ca.is_some()),
        ("max_requests_per_second", shape.max_requests_per_second.is_some()),
        ("max_requests_in_flight", shape.max_requests_in_flight.is_some()),
        ("connect_timeout", shape.connect_timeout.is_some()),
        ("answer_timeout", shape.answer_timeout.is_some()),
        ("idle_timeout", shape.idle_timeout.is_some()),
        ("attempts", shape.attempts.is_some()),
    ]
}
