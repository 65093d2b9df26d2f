//! DeleteObjects: many keys in one request, each with an outcome of its own.

use super::super::DirectoryOrigin;
use super::super::put::Precondition;
use super::answer::{malformed_xml, xml};
use super::ask::Ask;
use super::body::Body;
use super::xml::{Document, Element};
use larder_model::{ETag, ObjectKey, OriginError, RawAnswer};

/// Keys of one request (S3 API, DeleteObjects).
const KEYS: usize = 1000;

/// One key that is to be removed.
struct Doomed<'d> {
    key: &'d str,
    version: Option<&'d str>,
    etag: Option<&'d str>,
    /// A condition that S3 has for other buckets than these.
    strange: Option<&'static str>,
}

impl<'d> Doomed<'d> {
    fn read(object: &'d Element) -> Result<Self, OriginError> {
        object.children(&["Key", "VersionId", "ETag", "LastModifiedTime", "Size"])?;
        let mut strange = None;
        for name in ["LastModifiedTime", "Size"] {
            if object.text_of(name)?.is_some() {
                strange = Some(name);
            }
        }
        Ok(Self {
            key: object.text_of("Key")?.ok_or_else(malformed_xml)?,
            version: object.text_of("VersionId")?.filter(|id| !id.is_empty()),
            etag: object.text_of("ETag")?,
            strange,
        })
    }
}

/// Code and message of an error.
type Fault = (String, String);

impl DirectoryOrigin {
    pub(super) async fn delete_objects(
        &self,
        ask: &Ask,
        body: Body,
    ) -> Result<RawAnswer, OriginError> {
        let bucket = ask.bucket()?;
        self.bucket(bucket).await?;
        let root = body.xml("Delete").await?;
        let inside = root.children(&["Object", "Quiet"])?;
        let quiet = match root.text_of("Quiet")?.map(str::trim) {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(malformed_xml()),
        };
        let doomed: Result<Vec<_>, _> =
            inside.iter().filter(|e| e.name == "Object").map(Doomed::read).collect();
        let doomed = doomed?;
        if !(1..=KEYS).contains(&doomed.len()) {
            return Err(malformed_xml());
        }
        let mut document = Document::new("DeleteResult");
        for object in doomed {
            match self.remove(ask, &object).await? {
                Ok(()) if quiet => {}
                Ok(()) => {
                    document.inside("Deleted", |deleted| {
                        deleted.text("Key", object.key).maybe("VersionId", object.version);
                    });
                }
                Err((code, message)) => {
                    document.inside("Error", |error| {
                        error.text("Key", object.key).maybe("VersionId", object.version);
                        error.text("Code", code).text("Message", message);
                    });
                }
            }
        }
        Ok(xml(document))
    }

    /// Fails only where the whole request does.
    async fn remove(
        &self,
        ask: &Ask,
        object: &Doomed<'_>,
    ) -> Result<Result<(), Fault>, OriginError> {
        let fault = |code: &str, message: &str| Ok(Err((code.to_owned(), message.to_owned())));
        if let Some(name) = object.strange {
            return fault("NotImplemented", &format!("A folder has no condition {name}."));
        }
        let Ok(key) = ObjectKey::new(object.key) else {
            return match object.key {
                "" => fault("UserKeyMustBeSpecified", "The request must have a key."),
                _ => fault("KeyTooLongError", "Your key is too long"),
            };
        };
        // A version that never was is deleted already, as at S3.
        if object.version.is_some_and(|id| id != "null") {
            return Ok(Ok(()));
        }
        let precondition = match object.etag {
            None => Precondition::None,
            Some("*") => Precondition::Exists,
            Some(tag) => match ETag::new(tag) {
                Some(tag) => Precondition::Matches(tag),
                None => return fault("InvalidArgument", "The ETag is none."),
            },
        };
        match self.delete_object(ask.bucket()?, &key, precondition).await {
            Ok(()) => Ok(Ok(())),
            Err(OriginError::NotFound(reply) | OriginError::Refused(reply)) => {
                Ok(Err((reply.code, reply.message)))
            }
            Err(OriginError::Unreachable { origin, reason }) => {
                tracing::warn!(%origin, reason, "an object could not be deleted");
                fault("InternalError", "We encountered an internal error. Please try again.")
            }
            Err(other) => Err(other),
        }
    }
}
