//! Buckets: made, removed, and asked for settings that a folder does not have.

use super::super::open::absent;
use super::super::put::{NotCommitted, or_refused, remove_empty_folders};
use super::super::walk::holds_object;
use super::super::{DirectoryOrigin, blocking, failed, key::PRIVATE, refused};
use super::answer::{OWNER, bare, empty, malformed_xml, not_implemented, xml};
use super::ask::Ask;
use super::body::Body;
use super::xml::{Document, Element};
use http::HeaderMap;
use http::header::{HeaderValue, LOCATION};
use larder_model::{OriginError, RawAnswer};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, PoisonError};

/// How often a removal is tried over while writes come in.
const TRIES: u32 = 3;

/// What S3 answers for a setting that a bucket has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// An empty document with this root.
    Empty(&'static str),
    /// 404 with this code and message.
    Missing(&'static str, &'static str),
    /// Nothing costs anybody anything.
    Payer,
}

/// What is answered to GET with this parameter alone; `None` for what a folder knows nothing of.
pub(super) fn setting(name: &str) -> Option<Setting> {
    Some(match name {
        "accelerate" => Setting::Empty("AccelerateConfiguration"),
        "logging" => Setting::Empty("BucketLoggingStatus"),
        "notification" => Setting::Empty("NotificationConfiguration"),
        "requestPayment" => Setting::Payer,
        "cors" => {
            Setting::Missing("NoSuchCORSConfiguration", "The CORS configuration does not exist")
        }
        "encryption" => Setting::Missing(
            "ServerSideEncryptionConfigurationNotFoundError",
            "The server side encryption configuration was not found",
        ),
        "lifecycle" => Setting::Missing(
            "NoSuchLifecycleConfiguration",
            "The lifecycle configuration does not exist",
        ),
        "object-lock" => Setting::Missing(
            "ObjectLockConfigurationNotFoundError",
            "Object Lock configuration does not exist for this bucket",
        ),
        "ownershipControls" => Setting::Missing(
            "OwnershipControlsNotFoundError",
            "The bucket ownership controls were not found",
        ),
        "policy" => Setting::Missing("NoSuchBucketPolicy", "The bucket policy does not exist"),
        "publicAccessBlock" => Setting::Missing(
            "NoSuchPublicAccessBlockConfiguration",
            "The public access block configuration was not found",
        ),
        "replication" => Setting::Missing(
            "ReplicationConfigurationNotFoundError",
            "The replication configuration was not found",
        ),
        "tagging" => Setting::Missing("NoSuchTagSet", "The TagSet does not exist"),
        "website" => Setting::Missing(
            "NoSuchWebsiteConfiguration",
            "The specified bucket does not have a website configuration",
        ),
        _ => return None,
    })
}

impl DirectoryOrigin {
    pub(super) async fn create_bucket(
        &self,
        ask: &Ask,
        body: Body,
    ) -> Result<RawAnswer, OriginError> {
        let name = ask.bucket()?;
        if !may_be_made(name.as_str()) {
            let message = "The specified bucket is not valid.";
            return Err(refused(400, "InvalidBucketName", message));
        }
        if let Some(document) = body.document().await? {
            check_configuration(&Element::parse(&document, "CreateBucketConfiguration")?)?;
        }
        let path = self.0.root.join(name.as_str());
        let root = self.0.root.clone();
        let work = move || match fs::create_dir(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let is_bucket = fs::symlink_metadata(&path)?.is_dir();
                Ok(Err(is_bucket))
            }
            made => {
                made?;
                File::open(root)?.sync_all().map(Ok)
            }
        };
        let done = blocking(work).await;
        match done.map_err(|error| failed(&self.0.name, "make bucket", name, &error))? {
            Ok(()) => {}
            Err(true) => {
                let message = "Your previous request to create the named bucket succeeded and you \
                    already own it.";
                return Err(refused(409, "BucketAlreadyOwnedByYou", message));
            }
            Err(false) => {
                let message = "The requested bucket name is not available: something that is no \
                    folder has it.";
                return Err(refused(409, "BucketAlreadyExists", message));
            }
        }
        let mut headers = HeaderMap::new();
        headers.extend(HeaderValue::from_str(&ask.resource()).ok().map(|at| (LOCATION, at)));
        Ok(bare(headers))
    }

    pub(super) async fn delete_bucket(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        let name = ask.bucket()?;
        let folder = self.bucket(name).await?;
        let inner = Arc::clone(&self.0);
        let work = move || {
            let _changing = inner.changing.lock().unwrap_or_else(PoisonError::into_inner);
            or_refused(remove(&folder))
        };
        let done = blocking(work).await;
        done.map_err(|error| failed(&self.0.name, "delete bucket", name, &error))??;
        Ok(empty(204))
    }

    pub(super) async fn show_versioning(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        self.bucket(ask.bucket()?).await?;
        Ok(xml(Document::new("VersioningConfiguration")))
    }

    pub(super) async fn show_setting(
        &self,
        ask: &Ask,
        setting: Setting,
    ) -> Result<RawAnswer, OriginError> {
        self.bucket(ask.bucket()?).await?;
        match setting {
            Setting::Empty(root) => Ok(xml(Document::new(root))),
            Setting::Missing(code, message) => Err(refused(404, code, message)),
            Setting::Payer => {
                let mut document = Document::new("RequestPaymentConfiguration");
                document.text("Payer", "BucketOwner");
                Ok(xml(document))
            }
        }
    }

    /// Of a bucket or an object: everything is its owner's.
    pub(super) async fn show_acl(&self, ask: &Ask) -> Result<RawAnswer, OriginError> {
        if ask.key().is_ok() {
            self.open_object(ask).await?;
        } else {
            self.bucket(ask.bucket()?).await?;
        }
        let owner = |inside: &mut Document| {
            inside.text("ID", OWNER).text("DisplayName", OWNER);
        };
        let mut document = Document::new("AccessControlPolicy");
        document.inside("Owner", owner).inside("AccessControlList", |list| {
            list.inside("Grant", |grant| {
                grant.verbatim(
                    "<Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
                     xsi:type=\"CanonicalUser\">",
                );
                owner(grant);
                grant.verbatim("</Grantee>").text("Permission", "FULL_CONTROL");
            });
        });
        Ok(xml(document))
    }
}

/// The rules for new buckets (S3 User Guide, "Bucket naming rules"), which are narrower than those
/// for old ones.
fn may_be_made(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = [name.bytes().next(), name.bytes().last()];
    (3..=63).contains(&name.len())
        && name.bytes().all(|b| plain(b) || b == b'-' || b == b'.')
        && ends.into_iter().flatten().all(plain)
        && !name.contains("..")
        && name.parse::<Ipv4Addr>().is_err()
}

/// A folder is where it is, whatever region the client believes it in; more cannot be asked for.
fn check_configuration(root: &Element) -> Result<(), OriginError> {
    for child in root.children(&["LocationConstraint", "Location", "Bucket", "Tags"])? {
        match child.name.as_str() {
            "LocationConstraint" => child.as_text().map(drop)?,
            other => return Err(not_implemented(other)),
        }
    }
    root.text_of("LocationConstraint").map(drop).map_err(|_| malformed_xml())
}

/// Removes a bucket without objects. What is there and is no object stays, and keeps the bucket.
fn remove(bucket: &Path) -> Result<(), NotCommitted> {
    let not_empty = |message: &str| NotCommitted::Refused(refused(409, "BucketNotEmpty", message));
    let mut folders = Vec::new();
    for entry in fs::read_dir(bucket)? {
        let entry = entry?;
        if entry.file_name() == PRIVATE {
            continue;
        }
        let is_folder = entry.file_type()?.is_dir();
        let name_bytes = entry.file_name().len() + 1;
        if !is_folder || holds_object(bucket, &entry.path(), name_bytes)? {
            return Err(not_empty("The bucket you tried to delete is not empty"));
        }
        folders.push(entry.path());
    }
    for folder in folders {
        remove_empty_folders(&folder).map_err(|error| match error.kind() {
            ErrorKind::DirectoryNotEmpty => {
                not_empty("The bucket's folder holds something that is no object")
            }
            _ => error.into(),
        })?;
    }
    for _ in 0..TRIES {
        absent(remove_private(bucket))?;
        match fs::remove_dir(bucket) {
            Ok(()) => {
                let root = bucket.parent().unwrap_or(bucket);
                return Ok(File::open(root)?.sync_all()?);
            }
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            Err(error) => return Err(error.into()),
        }
    }
    let message = "A conflicting operation is in progress against this bucket. Please try again.";
    Err(NotCommitted::Refused(refused(409, "OperationAborted", message)))
}

/// Uploads and temporary files: those of requests that are under way end in an error.
fn remove_private(bucket: &Path) -> io::Result<()> {
    match fs::remove_dir_all(bucket.join(PRIVATE)) {
        // A request made another file meanwhile.
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::may_be_made;

    #[test]
    fn new_buckets_have_modern_names() {
        for name in ["abc", "a.b-c", "1a2", &"a".repeat(63)] {
            assert!(may_be_made(name), "{name}");
        }
        for name in ["ab", "Abc", "a_b", "abc-", "a..b", "127.0.0.1", &"a".repeat(64)] {
            assert!(!may_be_made(name), "{name}");
        }
    }
}
