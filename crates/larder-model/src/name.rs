//! Names as S3 and the configuration know them, each validated once, where it enters.
//!
//! A key is opaque: never a path, never normalised. `a//b`, `..` and `a` are three different keys.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// A name that breaks the rules of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name:?} is not valid: {rule}")]
pub struct InvalidName {
    kind: &'static str,
    name: String,
    rule: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $rule:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the rules of this kind of name.
            pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidName> {
                let name = name.as_ref();
                let valid: fn(&str) -> bool = $valid;
                if valid(name) {
                    Ok(Self(name.into()))
                } else {
                    // A hostile name may be long: an error repeats its beginning only.
                    let name = name.chars().take(80).collect();
                    Err(InvalidName { kind: $kind, name, rule: $rule })
                }
            }

            /// The name itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

fn label(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && !name.starts_with(['-', '.'])
}

name!(
    /// A bucket, as the client names it or as the origin does.
    ///
    /// Upper case and underscores are taken too: buckets older than 2018 may have them.
    BucketName,
    "bucket name",
    "3 to 63 of a-z, 0-9, '.', '-' (and, for old buckets, A-Z and '_'), no '.' or '-' at the start",
    |name| name.len() >= 3 && label(name)
);
name!(
    /// The key of an object: 1 to 1,024 bytes of UTF-8
    /// (S3 User Guide, "Naming Amazon S3 objects").
    ObjectKey,
    "object key",
    "1 to 1,024 bytes of UTF-8",
    |key| (1..=1024).contains(&key.len())
);
name!(
    /// One version of an object in a versioned bucket; opaque, 1 to 1,024 bytes.
    VersionId,
    "version id",
    "1 to 1,024 bytes",
    |id| (1..=1024).contains(&id.len())
);
name!(
    /// A dataset, as the configuration names it.
    DatasetName,
    "dataset name",
    "1 to 63 letters, digits, '.', '-' or '_', no '.' or '-' at the start",
    label
);
name!(
    /// An origin, as the configuration names it.
    OriginName,
    "origin name",
    "1 to 63 letters, digits, '.', '-' or '_', no '.' or '-' at the start",
    label
);
name!(
    /// A cache policy, built in or loaded.
    PolicyName,
    "policy name",
    "1 to 63 letters, digits, '.', '-' or '_', no '.' or '-' at the start",
    label
);
name!(
    /// A part of the store that one or several datasets fill; `shared`, or a dataset's own.
    PoolName,
    "pool name",
    "1 to 63 letters, digits, '.', '-', '_' or '@', no '.' or '-' at the start",
    |name| label(&name.replace('@', "-a-")) || name == "@shared"
);

impl VersionId {
    /// Whether this is `null`, the one version id whose object can be overwritten in place
    /// (S3 User Guide, "Working with objects in a versioning-suspended bucket").
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.as_str() == "null"
    }
}

impl PoolName {
    /// The pool of all datasets without a quota of their own. `@` keeps it apart from any dataset.
    #[must_use]
    pub fn shared() -> Self {
        Self("@shared".into())
    }

    /// The pool of a dataset with a quota.
    #[must_use]
    pub fn of(dataset: &DatasetName) -> Self {
        Self(dataset.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::{BucketName, ObjectKey, VersionId};

    #[test]
    fn a_key_is_kept_byte_for_byte() {
        for key in ["a//b", "..", "./a", " ", "a%2Fb", "ключ", "a\u{0}b"] {
            assert_eq!(ObjectKey::new(key).unwrap().as_str(), key);
        }
    }

    #[test]
    fn a_key_has_1_to_1024_bytes() {
        assert!(ObjectKey::new("").is_err());
        assert!(ObjectKey::new("x".repeat(1024)).is_ok());
        assert!(ObjectKey::new("x".repeat(1025)).is_err());
    }

    #[test]
    fn a_bucket_is_never_a_path() {
        for name in ["..", ".ab", "a/b", "ab", "", "-ab", "a b"] {
            assert!(BucketName::new(name).is_err(), "{name:?}");
        }
        for name in ["abc", "my.bucket-1", "Old_Bucket"] {
            assert!(BucketName::new(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn an_invalid_name_repeats_only_its_beginning() {
        let error = ObjectKey::new("x".repeat(5000)).unwrap_err();
        assert!(error.to_string().len() < 200, "{error}");
    }

    #[test]
    fn the_null_version_is_known() {
        assert!(VersionId::new("null").unwrap().is_null());
        assert!(!VersionId::new("3L4kqtJlcpXroDTDmJ").unwrap().is_null());
    }
}
