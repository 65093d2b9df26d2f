//! The rules of `[origin.NAME]`.

use super::Check;
use crate::config::secret::IdRef;
use crate::config::shape::OriginShape;
use crate::config::{Addressing, Id, OriginKind, OriginRule, S3Rule};
use larder_model::OriginName;
use std::collections::BTreeMap;
use std::time::Duration;

/// Kinds of DESIGN §7 that are not there yet.
const LATER_KINDS: [&str; 2] = ["oss", "bos"];

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
        match shape.kind.as_deref() {
            Some("s3") => self.s3(name, shape).map(|rule| OriginKind::S3(Box::new(rule))),
            Some("directory") => self.directory(name, shape),
            Some(kind) if LATER_KINDS.contains(&kind) => {
                let advice =
                    format!("{kind:?} comes with its dialect; the kinds are s3, directory");
                self.later(&key, &advice);
                None
            }
            Some(kind) => {
                self.problem(&key, format!("{kind:?} is not a kind; they are s3, directory"));
                None
            }
            None => {
                self.missing(&key, "kind = \"s3\"");
                None
            }
        }
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

    fn s3(&mut self, name: &str, shape: &OriginShape) -> Option<S3Rule> {
        if shape.path.is_some() {
            self.problem(&["origin", name, "path"], "does not apply to kind = \"s3\"");
        }
        if shape.credentials.is_some() {
            let advice = "give access_key_id and secret_access_key";
            self.later(&["origin", name, "credentials"], advice);
        }
        let endpoint = self.endpoint(name, shape.endpoint.as_deref());
        let addressing = self.addressing(name, shape.addressing.as_deref());
        let access_key_id = self.access_key_id(name, shape.access_key_id.as_ref());
        let key = ["origin", name, "secret_access_key"];
        let secret_access_key = match &shape.secret_access_key {
            Some(reference) => self.secret(&key, reference),
            None => {
                self.missing(&key, "secret_access_key = \"file:/run/secrets/origin\"");
                None
            }
        };
        let reference = shape.session_token.as_ref();
        let session_token =
            reference.and_then(|token| self.secret(&["origin", name, "session_token"], token));
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
            endpoint: endpoint?,
            region: shape.region.clone().unwrap_or_else(|| "us-east-1".to_owned()),
            addressing,
            access_key_id: access_key_id?,
            secret_access_key: secret_access_key?,
            session_token,
            max_requests_per_second: shape.max_requests_per_second,
            max_requests_in_flight: shape.max_requests_in_flight.unwrap_or(512),
            connect_timeout,
            answer_timeout,
            idle_timeout,
            attempts: shape.attempts.unwrap_or(5),
        })
    }

    fn endpoint(&mut self, name: &str, endpoint: Option<&str>) -> Option<String> {
        let key = ["origin", name, "endpoint"];
        let Some(endpoint) = endpoint else {
            self.missing(&key, "endpoint = \"https://s3.us-east-1.amazonaws.com\"");
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

    fn addressing(&mut self, name: &str, addressing: Option<&str>) -> Addressing {
        match addressing {
            None | Some("path") => Addressing::Path,
            Some("virtual") => Addressing::Virtual,
            Some(other) => {
                let message = format!("{other:?} must be \"path\" or \"virtual\"");
                self.problem(&["origin", name, "addressing"], message);
                Addressing::Path
            }
        }
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
}

/// The keys that only an S3 endpoint has, and whether they are given.
fn s3_keys(shape: &OriginShape) -> [(&'static str, bool); 13] {
    [
        ("endpoint", shape.endpoint.is_some()),
        ("region", shape.region.is_some()),
        ("addressing", shape.addressing.is_some()),
        ("access_key_id", shape.access_key_id.is_some()),
        ("secret_access_key", shape.secret_access_key.is_some()),
        ("session_token", shape.session_token.is_some()),
        ("credentials", shape.credentials.is_some()),
        ("max_requests_per_second", shape.max_requests_per_second.is_some()),
        ("max_requests_in_flight", shape.max_requests_in_flight.is_some()),
        ("connect_timeout", shape.connect_timeout.is_some()),
        ("answer_timeout", shape.answer_timeout.is_some()),
        ("idle_timeout", shape.idle_timeout.is_some()),
        ("attempts", shape.attempts.is_some()),
    ]
}
