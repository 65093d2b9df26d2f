//! Which operation a request is: method, path and query, parsed by ourselves and exactly once.

mod table;

pub(crate) use table::{Brings, Class, Needs, Row, Set, Shows, TABLE};

use crate::fault::Fault;
use crate::query::Query;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use larder_model::{BucketName, ObjectKey};
use percent_encoding::percent_decode_str;
use std::fmt;
use table::{OTHER, On, Verb};

/// Makes a PUT a copy.
pub(crate) const X_AMZ_COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The service: `/`.
    Service,
    /// A bucket.
    Bucket(BucketName),
    /// An object.
    Object(BucketName, ObjectKey),
}

/// What a request does: the place of a row in the table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Operation(usize);

impl Operation {
    /// A request that no row tells, or that was refused before it could be told.
    pub(crate) const OTHER: Self = Self(usize::MAX);

    /// S3's name of the operation, and the metrics' label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    /// Its row.
    pub(crate) fn row(self) -> &'static Row {
        TABLE.get(self.0).unwrap_or(&OTHER)
    }

    /// Its place among all operations, of which there are [`Self::COUNT`].
    pub(crate) fn place(self) -> usize {
        self.0.min(TABLE.len())
    }

    /// The upload of a browser's form.
    pub(crate) fn post_object() -> Self {
        let place = TABLE.iter().position(|row| row.name == "PostObject");
        place.map_or(Self::OTHER, Self)
    }

    /// How many there are, [`Self::OTHER`] among them.
    pub(crate) const COUNT: usize = TABLE.len() + 1;

    /// The operation of a request that the guard has passed: the row with the most marks of those
    /// that tell it.
    ///
    /// A parameter that S3 gives a meaning, and that the row knows nothing of, makes it another
    /// operation, which is not passed on: with a body in it, it might overwrite an object. Parameters
    /// that mean nothing are ignored on reads, as S3 does, and refused on everything else.
    ///
    /// # Errors
    ///
    /// 405 where S3 has no such operation, 501 where it is none of ours.
    pub(crate) fn of(
        method: &Method,
        target: &Target,
        query: &Query<'_>,
        headers: &HeaderMap,
    ) -> Result<Self, Fault> {
        let verb = match *method {
            Method::GET => Verb::Get,
            Method::HEAD => Verb::Head,
            Method::PUT => Verb::Put,
            Method::POST => Verb::Post,
            Method::DELETE => Verb::Delete,
            _ => return Err(Fault::method_not_allowed(method)),
        };
        let on = match target {
            Target::Service => On::Service,
            Target::Bucket(_) => On::Bucket,
            Target::Object(..) => On::Object,
        };
        let named = |(name, _): (&str, _)| name.eq_ignore_ascii_case(X_AMZ_COPY_SOURCE.as_str());
        let copies = verb == Verb::Put
            && (headers.contains_key(X_AMZ_COPY_SOURCE) || query.iter().any(named));
        let tells = |(_, row): &(usize, &Row)| {
            row.verb == verb
                && row.on == on
                && (copies || !row.copies)
                && row.marks.iter().all(|mark| is_marked(query, mark))
        };
        let weight = |(_, row): &(usize, &Row)| (row.marks.len(), row.copies);
        let Some((place, row)) = TABLE.iter().enumerate().filter(tells).max_by_key(weight) else {
            return Err(match (on, query.iter().find(|(name, _)| is_mark(name))) {
                (On::Service, _) | (_, None) => Fault::method_not_allowed(method),
                (_, Some((name, _))) => unknown(name),
            });
        };
        let reads = row.class == Class::Cached;
        let foreign = query.iter().map(|(name, _)| name).find(|name| {
            let known = row.marks.contains(name) || row.takes.contains(name);
            !known && !is_of_signature(name) && (!reads || is_mark(name))
        });
        match foreign {
            Some(name) => Err(unknown(name)),
            None if row.class == Class::Refused => Err(refused(row)),
            None => Ok(Self(place)),
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn is_marked(query: &Query<'_>, mark: &str) -> bool {
    match query.get(mark) {
        // Version 1 may be asked for by any other number.
        Some(value) => mark != "list-type" || value == "2",
        None => false,
    }
}

/// Whether a parameter tells some operation, so that it cannot be ignored. `id` means nothing alone,
/// and `partNumber` is a parameter of GetObject.
fn is_mark(name: &str) -> bool {
    let known = |row: &Row| row.marks.contains(&name);
    let weak = ["list-type", "id", "partNumber"].contains(&name);
    !weak && (TABLE.iter().any(known) || UNSERVED.contains(&name))
}

/// Parameters of operations that have no row: those of OSS and BOS, and S3's for which a method is
/// missing.
const UNSERVED: [&str; 12] = [
    "asyncFetch",
    "callback",
    "comp",
    "copyrightProtection",
    "fetch",
    "inventoryList",
    "mirroring",
    "qos",
    "style",
    "transferAcceleration",
    "vod",
    "x-oss-async-process",
];

/// Whether a parameter belongs to the signature, or tells the operation for people's eyes, or is one
/// of the headers that a presigned URL may carry.
pub(crate) fn is_of_signature(name: &str) -> bool {
    name == "x-id" || name.get(..6).is_some_and(|head| head.eq_ignore_ascii_case("x-amz-"))
}

fn unknown(parameter: &str) -> Fault {
    let shown: String = parameter.chars().take(80).collect();
    let text =
        format!("This operation is not implemented here: it is told by the parameter {shown}.");
    Fault::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", text).with("Parameter", shown)
}

fn refused(row: &Row) -> Fault {
    let text = format!("The operation {} is not implemented here.", row.name);
    Fault::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", text).with("Operation", row.name)
}

/// Reads a request's path. `host_bucket` is the bucket that the Host header names, if it does.
///
/// The path is split first and decoded then, once: an escaped slash is part of a name, `+` is a
/// plus, `//` and `..` are kept. What comes out is not normalised in any way.
///
/// # Errors
///
/// The S3 code, with 400: `InvalidURI`, `InvalidBucketName` or `KeyTooLongError`.
pub fn parse_target(path: &str, host_bucket: Option<&str>) -> Result<Target, &'static str> {
    let path = path.strip_prefix('/').ok_or("InvalidURI")?;
    let (bucket, key) = match host_bucket {
        Some(bucket) => (bucket, path),
        None if path.is_empty() => return Ok(Target::Service),
        None => path.split_once('/').unwrap_or((path, "")),
    };
    let decode = |text| percent_decode_str(text).decode_utf8().map_err(|_| "InvalidURI");
    let bucket = BucketName::new(decode(bucket)?).map_err(|_| "InvalidBucketName")?;
    if key.is_empty() {
        return Ok(Target::Bucket(bucket));
    }
    let key = ObjectKey::new(decode(key)?).map_err(|_| "KeyTooLongError")?;
    Ok(Target::Object(bucket, key))
}

/// The answer to a path that [`parse_target`] refused.
pub(crate) fn target_fault(code: &'static str) -> Fault {
    let message = match code {
        "InvalidBucketName" => "The specified bucket is not valid.",
        "KeyTooLongError" => "Your key is too long",
        _ => return Fault::invalid_uri(),
    };
    Fault::new(StatusCode::BAD_REQUEST, code, message)
}

#[cfg(test)]
mod tests {
    use super::{Operation, TABLE, Target, X_AMZ_COPY_SOURCE, parse_target};
    use crate::query::Query;
    use http::{HeaderMap, HeaderValue, Method};
    use larder_model::{BucketName, ObjectKey};

    fn check(path: &str, host_bucket: Option<&str>, expected: Result<(&str, &str), &'static str>) {
        let expected = expected.map(|(bucket, key)| match (bucket, key) {
            ("", _) => Target::Service,
            (bucket, "") => Target::Bucket(BucketName::new(bucket).unwrap()),
            (bucket, key) => {
                Target::Object(BucketName::new(bucket).unwrap(), ObjectKey::new(key).unwrap())
            }
        });
        assert_eq!(parse_target(path, host_bucket), expected, "{path}");
    }

    #[test]
    fn a_path_is_decoded_once_and_never_normalised() {
        check("/", None, Ok(("", "")));
        check("/data", None, Ok(("data", "")));
        check("/data/", None, Ok(("data", "")));
        check("/data/a//b/../c", None, Ok(("data", "a//b/../c")));
        check("/data//a", None, Ok(("data", "/a")));
        check("/data/a+b%2Bc%20d%252F", None, Ok(("data", "a+b+c d%2F")));
        check("/data/%D0%BA", None, Ok(("data", "к")));
        check("/", Some("data"), Ok(("data", "")));
        check("/x/y", Some("data"), Ok(("data", "x/y")));
    }

    #[test]
    fn a_path_that_names_nothing_is_refused() {
        check("/ab/x", None, Err("InvalidBucketName"));
        check("/data%2Fx", None, Err("InvalidBucketName"));
        check("//x", None, Err("InvalidBucketName"));
        check("/../x", None, Err("InvalidBucketName"));
        check("/data/%ff", None, Err("InvalidURI"));
        check("*", None, Err("InvalidURI"));
        check(&format!("/data/{}", "x".repeat(1025)), None, Err("KeyTooLongError"));
    }

    #[test]
    fn an_operation_is_told_by_method_target_and_query() {
        let headers = |copies: bool| {
            let mut headers = HeaderMap::new();
            if copies {
                headers.insert(X_AMZ_COPY_SOURCE, HeaderValue::from_static("b/k"));
            }
            headers
        };
        let told = |method: Method, path: &str, query: &str, copies: bool| {
            let target = parse_target(path, None).unwrap();
            let query = Query::parse(query).unwrap();
            match Operation::of(&method, &target, &query, &headers(copies)) {
                Ok(operation) => operation.as_str().to_owned(),
                Err(fault) => fault.code().to_owned(),
            }
        };
        for (method, path, query, expected) in [
            (Method::GET, "/", "", "ListBuckets"),
            (Method::HEAD, "/", "", "MethodNotAllowed"),
            (Method::PUT, "/", "", "MethodNotAllowed"),
            (Method::GET, "/data", "prefix=x", "ListObjects"),
            (Method::GET, "/data", "list-type=2", "ListObjectsV2"),
            (Method::GET, "/data", "list-type=1", "ListObjects"),
            (Method::GET, "/data", "location", "GetBucketLocation"),
            (Method::GET, "/data", "versions&prefix=a", "ListObjectVersions"),
            (Method::GET, "/data", "inventory&id=1", "GetBucketInventoryConfiguration"),
            (Method::GET, "/data", "inventory", "ListBucketInventoryConfigurations"),
            (Method::GET, "/data", "newthing", "ListObjects"),
            (Method::GET, "/data", "session", "NotImplemented"),
            (Method::HEAD, "/data", "", "HeadBucket"),
            (Method::HEAD, "/data", "acl", "NotImplemented"),
            (Method::GET, "/data/k", "x-id=GetObject&versionId=1&partNumber=2", "GetObject"),
            (Method::GET, "/data/k", "tagging", "GetObjectTagging"),
            (Method::GET, "/data/k", "tagging&acl", "NotImplemented"),
            (Method::GET, "/data/k", "torrent", "NotImplemented"),
            (Method::GET, "/data/k", "uploadId=1&max-parts=2", "ListParts"),
            (Method::PUT, "/data/k", "x-id=PutObject&X-Amz-Date=1", "PutObject"),
            (Method::PUT, "/data/k", "newthing", "NotImplemented"),
            (Method::PUT, "/data/k", "delete", "NotImplemented"),
            (Method::PUT, "/data/k", "partNumber=1&uploadId=2", "UploadPart"),
            (Method::PUT, "/data/k", "partNumber=1", "NotImplemented"),
            (Method::POST, "/data/k", "", "MethodNotAllowed"),
            (Method::POST, "/data/k", "select&select-type=2", "SelectObjectContent"),
            (Method::POST, "/data", "delete", "DeleteObjects"),
            (Method::DELETE, "/data", "", "DeleteBucket"),
            (Method::DELETE, "/data", "policy", "DeleteBucketPolicy"),
        ] {
            assert_eq!(told(method, path, query, false), expected, "{path}?{query}");
        }
        assert_eq!(told(Method::PUT, "/data/k", "", true), "CopyObject");
        let part = "partNumber=1&uploadId=2";
        assert_eq!(told(Method::PUT, "/data/k", part, true), "UploadPartCopy");
        assert_eq!(told(Method::PUT, "/data/k", "acl", true), "PutObjectAcl");
    }

    #[test]
    fn no_two_rows_tell_the_same_request_and_no_name_is_there_twice() {
        for (at, a) in TABLE.iter().enumerate() {
            for b in &TABLE[at + 1..] {
                let same = (a.verb, a.on, a.marks, a.copies) == (b.verb, b.on, b.marks, b.copies);
                assert!(!same && a.name != b.name, "{} and {}", a.name, b.name);
            }
        }
    }
}
