//! Which operation a request is: method, path and query, parsed by ourselves and exactly once.

use crate::fault::Fault;
use crate::query::Query;
use http::{Method, StatusCode};
use larder_model::{BucketName, ObjectKey};
use percent_encoding::percent_decode_str;

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

/// The operations that the gateway knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// GET of an object.
    GetObject,
    /// HEAD of an object.
    HeadObject,
    /// GET of a bucket.
    ListObjects,
    /// GET of a bucket with `list-type=2`.
    ListObjectsV2,
    /// HEAD of a bucket.
    HeadBucket,
    /// GET of a bucket with `location`.
    GetBucketLocation,
    /// GET of the service.
    ListBuckets,
    /// Everything else: 501 for now.
    Other,
}

impl Operation {
    /// Every one, for the metrics.
    pub(crate) const ALL: [Self; 8] = [
        Self::GetObject,
        Self::HeadObject,
        Self::ListObjects,
        Self::ListObjectsV2,
        Self::HeadBucket,
        Self::GetBucketLocation,
        Self::ListBuckets,
        Self::Other,
    ];

    /// S3's name of the operation, and the metrics' label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GetObject => "GetObject",
            Self::HeadObject => "HeadObject",
            Self::ListObjects => "ListObjects",
            Self::ListObjectsV2 => "ListObjectsV2",
            Self::HeadBucket => "HeadBucket",
            Self::GetBucketLocation => "GetBucketLocation",
            Self::ListBuckets => "ListBuckets",
            Self::Other => "Other",
        }
    }

    /// The operation of a request that the guard has passed. 405 where S3 has none such.
    pub(crate) fn of(method: &Method, target: &Target, query: &Query<'_>) -> Result<Self, Fault> {
        let elsewhere = || query.iter().any(|(name, _)| is_sub_resource(name));
        Ok(match (method, target) {
            (&Method::GET, Target::Service) => Self::ListBuckets,
            (&Method::GET, Target::Bucket(_)) if query.has("location") => Self::GetBucketLocation,
            (&Method::GET, Target::Bucket(_)) if elsewhere() => Self::Other,
            (&Method::GET, Target::Bucket(_)) => match query.get("list-type") {
                Some("2") => Self::ListObjectsV2,
                _ => Self::ListObjects,
            },
            (&Method::HEAD, Target::Bucket(_)) if !elsewhere() => Self::HeadBucket,
            (&Method::GET, Target::Object(..)) if !elsewhere() => Self::GetObject,
            (&Method::HEAD, Target::Object(..)) if !elsewhere() => Self::HeadObject,
            (_, Target::Service) => return Err(Fault::method_not_allowed(method)),
            _ => Self::Other,
        })
    }
}

/// Query parameters that make a request another operation ("Actions" in the S3 API Reference, and
/// those of OSS).
const SUB_RESOURCES: [&str; 45] = [
    "abac",
    "accelerate",
    "acl",
    "analytics",
    "append",
    "attributes",
    "callback",
    "comp",
    "cors",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "live",
    "location",
    "logging",
    "metadataConfiguration",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "objectMeta",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "referer",
    "renameObject",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "session",
    "symlink",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versioning",
    "versions",
    "website",
    "x-oss-process",
];

fn is_sub_resource(name: &str) -> bool {
    SUB_RESOURCES.binary_search(&name).is_ok()
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
    use super::{Operation, SUB_RESOURCES, Target, parse_target};
    use crate::query::Query;
    use http::Method;
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
        let operation = |method: Method, path: &str, query: &str| {
            let target = parse_target(path, None).unwrap();
            Operation::of(&method, &target, &Query::parse(query).unwrap()).ok()
        };
        assert_eq!(operation(Method::GET, "/", ""), Some(Operation::ListBuckets));
        assert_eq!(operation(Method::HEAD, "/", ""), None);
        assert_eq!(operation(Method::GET, "/data", "prefix=x"), Some(Operation::ListObjects));
        assert_eq!(operation(Method::GET, "/data", "list-type=2"), Some(Operation::ListObjectsV2));
        assert_eq!(operation(Method::GET, "/data", "location"), Some(Operation::GetBucketLocation));
        assert_eq!(operation(Method::GET, "/data", "versions"), Some(Operation::Other));
        assert_eq!(operation(Method::HEAD, "/data", ""), Some(Operation::HeadBucket));
        let get = operation(Method::GET, "/data/k", "x-id=GetObject&versionId=1&partNumber=2");
        assert_eq!(get, Some(Operation::GetObject));
        assert_eq!(operation(Method::GET, "/data/k", "tagging"), Some(Operation::Other));
        assert_eq!(operation(Method::PUT, "/data/k", ""), Some(Operation::Other));
        assert_eq!(operation(Method::POST, "/data", "delete"), Some(Operation::Other));
    }

    #[test]
    fn the_sub_resources_are_sorted_for_the_search() {
        assert!(SUB_RESOURCES.is_sorted());
    }
}
