//! Which operation a raw request is: a table of methods and parameters.
//!
//! Invariant: an operation is found only when all of the request's parameters are of it.

use super::ask::Ask;
use super::bucket::{self, Setting};
use http::Method;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    ListBuckets,
    CreateBucket,
    DeleteBucket,
    HeadBucket,
    GetLocation,
    GetVersioning,
    GetAcl,
    GetSetting(Setting),
    ListObjects,
    ListVersions,
    ListUploads,
    DeleteObjects,
    /// Or its HEAD.
    GetObject,
    GetAttributes,
    /// Or a copy.
    PutObject,
    DeleteObject,
    GetTagging,
    PutTagging,
    DeleteTagging,
    CreateUpload,
    /// Or a copied one.
    UploadPart,
    ListParts,
    CompleteUpload,
    AbortUpload,
}

const SERVICE: usize = 0;
const BUCKET: usize = 1;
const OBJECT: usize = 2;

struct Rule {
    method: Method,
    depth: usize,
    /// Parameters that must be there.
    needed: &'static [&'static str],
    /// Parameters that may be.
    allowed: &'static [&'static str],
    task: Task,
}

const fn rule(
    method: Method,
    depth: usize,
    needed: &'static [&'static str],
    allowed: &'static [&'static str],
    task: Task,
) -> Rule {
    Rule { method, depth, needed, allowed, task }
}

const LIST: &[&str] = &[
    "list-type",
    "prefix",
    "delimiter",
    "max-keys",
    "encoding-type",
    "marker",
    "continuation-token",
    "start-after",
    "fetch-owner",
];
const LIST_VERSIONS: &[&str] =
    &["prefix", "delimiter", "max-keys", "encoding-type", "key-marker", "version-id-marker"];
const LIST_UPLOADS: &[&str] =
    &["prefix", "delimiter", "max-uploads", "encoding-type", "key-marker", "upload-id-marker"];
const LIST_PARTS: &[&str] = &["max-parts", "part-number-marker", "encoding-type"];
const GET: &[&str] = &[
    "versionId",
    "partNumber",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
];
const VERSION: &[&str] = &["versionId"];

const RULES: &[Rule] = &[
    rule(Method::GET, SERVICE, &[], &[], Task::ListBuckets),
    rule(Method::PUT, BUCKET, &[], &[], Task::CreateBucket),
    rule(Method::DELETE, BUCKET, &[], &[], Task::DeleteBucket),
    rule(Method::HEAD, BUCKET, &[], &[], Task::HeadBucket),
    rule(Method::GET, BUCKET, &["location"], &[], Task::GetLocation),
    rule(Method::GET, BUCKET, &["versioning"], &[], Task::GetVersioning),
    rule(Method::GET, BUCKET, &["acl"], &[], Task::GetAcl),
    rule(Method::GET, BUCKET, &["versions"], LIST_VERSIONS, Task::ListVersions),
    rule(Method::GET, BUCKET, &["uploads"], LIST_UPLOADS, Task::ListUploads),
    rule(Method::GET, BUCKET, &[], LIST, Task::ListObjects),
    rule(Method::POST, BUCKET, &["delete"], &[], Task::DeleteObjects),
    rule(Method::GET, OBJECT, &["uploadId"], LIST_PARTS, Task::ListParts),
    rule(Method::GET, OBJECT, &["attributes"], VERSION, Task::GetAttributes),
    rule(Method::GET, OBJECT, &["tagging"], VERSION, Task::GetTagging),
    rule(Method::GET, OBJECT, &["acl"], VERSION, Task::GetAcl),
    rule(Method::GET, OBJECT, &[], GET, Task::GetObject),
    rule(Method::HEAD, OBJECT, &[], GET, Task::GetObject),
    rule(Method::PUT, OBJECT, &["partNumber", "uploadId"], &[], Task::UploadPart),
    rule(Method::PUT, OBJECT, &["tagging"], VERSION, Task::PutTagging),
    rule(Method::PUT, OBJECT, &[], &[], Task::PutObject),
    rule(Method::DELETE, OBJECT, &["uploadId"], &[], Task::AbortUpload),
    rule(Method::DELETE, OBJECT, &["tagging"], VERSION, Task::DeleteTagging),
    rule(Method::DELETE, OBJECT, &[], VERSION, Task::DeleteObject),
    rule(Method::POST, OBJECT, &["uploads"], &[], Task::CreateUpload),
    rule(Method::POST, OBJECT, &["uploadId"], &[], Task::CompleteUpload),
];

/// The operation's name, which SDKs add and nobody needs.
const NAME: &str = "x-id";

/// The task of a request; `None` for one that no folder can do.
pub(super) fn find(ask: &Ask) -> Option<Task> {
    let fits = |rule: &&Rule| {
        let known = |name: &str| {
            name == NAME || rule.needed.contains(&name) || rule.allowed.contains(&name)
        };
        rule.method == ask.method
            && rule.depth == ask.depth()
            && rule.needed.iter().all(|name| ask.has(name))
            && ask.params().all(known)
    };
    RULES.iter().find(fits).map(|rule| rule.task).or_else(|| find_setting(ask))
}

fn find_setting(ask: &Ask) -> Option<Task> {
    let mut names = ask.params().filter(|name| *name != NAME);
    let (name, rest) = (names.next()?, names.next());
    let asks = ask.method == Method::GET && ask.depth() == BUCKET && rest.is_none();
    bucket::setting(name).filter(|_| asks).map(Task::GetSetting)
}

/// The request in a word, for the message that it cannot be done.
pub(super) fn describe(ask: &Ask) -> String {
    let names: Vec<_> = ask.params().filter(|name| *name != NAME).collect();
    let of = ["the service", "a bucket", "an object"][ask.depth().min(OBJECT)];
    if names.is_empty() {
        format!("{} of {of}", ask.method)
    } else {
        format!("{} of {of} with {}", ask.method, names.join(", "))
    }
}
