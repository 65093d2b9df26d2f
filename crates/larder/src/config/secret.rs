//! Secrets: where they are written down, and their text, which nothing here ever shows.
//!
//! Invariant: `Debug`, `Display` and `Serialize` of every type in this file give the reference or
//! `***`. The only way to the text is [`SecretText::expose`].

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest secret that is read from a file, in bytes: a larger file is not a secret.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// The text of a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretText(Arc<str>);

impl SecretText {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that signs or compares with it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where the configuration says that a secret is: `file:PATH` or `env:NAME`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SecretRef {
    /// A file that holds nothing but the secret; a line end behind it is not part of it.
    File(PathBuf),
    /// A variable of the environment.
    Env(String),
}

impl SecretRef {
    /// Reads `file:PATH` or `env:NAME`; `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("file:").filter(|path| !path.is_empty()) {
            return Some(Self::File(path.into()));
        }
        let name = text.strip_prefix("env:").filter(|name| !name.is_empty())?;
        Some(Self::Env(name.to_owned()))
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Env(name) => write!(f, "env:{name}"),
        }
    }
}

impl Serialize for SecretRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

struct RefVisitor;

impl Visitor<'_> for RefVisitor {
    type Value = SecretRef;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a reference to a secret: \"file:PATH\" or \"env:NAME\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SecretRef, E> {
        // The text may be the secret itself: it must not appear in the message.
        let refused = "must be a reference, \"file:PATH\" or \"env:NAME\"; the value given is \
                       neither and is not repeated here";
        SecretRef::parse(text).ok_or_else(|| E::custom(refused))
    }
}

impl<'de> Deserialize<'de> for SecretRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RefVisitor)
    }
}

/// An access key id: public, so it may be written out, or be a reference like a secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum IdRef {
    /// The id itself.
    Plain(String),
    /// Where it is.
    Ref(SecretRef),
}

impl Serialize for IdRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Plain(id) => serializer.serialize_str(id),
            Self::Ref(reference) => reference.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for IdRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(SecretRef::parse(&text).map_or(Self::Plain(text), Self::Ref))
    }
}

/// A secret that was found where its reference said.
#[derive(Clone, Debug)]
pub(crate) struct Secret {
    /// As the configuration has it; what `config show` prints.
    pub(crate) reference: SecretRef,
    /// The file to re-read when it changes, its path made absolute; `None` if it cannot change.
    pub(crate) file: Option<PathBuf>,
    /// The text as last read.
    pub(crate) text: SecretText,
}

impl Secret {
    /// Looks a secret up. A relative path is relative to `base`.
    pub(crate) fn find(
        reference: &SecretRef,
        base: &Path,
        env: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let (file, text) = match reference {
            SecretRef::File(path) => {
                let path = base.join(path);
                let text = read_file(&path)?;
                (Some(path), text)
            }
            SecretRef::Env(name) => {
                let text = env.get(name).map(|text| text.trim()).unwrap_or_default();
                if text.is_empty() {
                    return Err(format!("environment variable {name} is not set, or is empty"));
                }
                (None, SecretText::new(text))
            }
        };
        Ok(Self { reference: reference.clone(), file, text })
    }
}

/// The secret in a file, without the white space around it.
pub(crate) fn read_file(path: &Path) -> Result<SecretText, String> {
    let shown = path.display();
    let told = |error: std::io::Error| format!("cannot read {shown}: {error}");
    if std::fs::metadata(path).map_err(told)?.len() > MAX_SECRET_BYTES {
        return Err(format!("{shown} is longer than {MAX_SECRET_BYTES} bytes, so no secret"));
    }
    let text = std::fs::read_to_string(path).map_err(told)?;
    match text.trim() {
        "" => Err(format!("{shown} is empty")),
        text => Ok(SecretText::new(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Secret, SecretRef, SecretText};
    use std::collections::BTreeMap;
    use std::path::Path;

    #[test]
    fn a_secret_never_shows_its_text() {
        let env = BTreeMap::from([("S".to_owned(), "canary-text".to_owned())]);
        let reference = SecretRef::parse("env:S").unwrap();
        let secret = Secret::find(&reference, Path::new("/"), &env).unwrap();
        assert_eq!(secret.text.expose(), "canary-text");
        assert!(!format!("{secret:?} {:?}", SecretText::new("canary-text")).contains("canary"));
    }

    #[test]
    fn a_file_is_read_without_its_line_end_and_relative_to_the_base() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("s"), "hush\r\n").unwrap();
        let reference = SecretRef::parse("file:s").unwrap();
        let secret = Secret::find(&reference, dir.path(), &BTreeMap::new()).unwrap();
        assert_eq!(secret.text.expose(), "hush");
        assert_eq!(secret.file.as_deref(), Some(dir.path().join("s").as_path()));
    }

    #[test]
    fn a_missing_empty_or_unset_secret_says_what_to_look_at() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("blank"), "\n").unwrap();
        let find = |text: &str| {
            let reference = SecretRef::parse(text).unwrap();
            Secret::find(&reference, dir.path(), &BTreeMap::new()).unwrap_err()
        };
        assert!(find("file:nowhere").starts_with("cannot read"));
        assert!(find("file:blank").ends_with("is empty"));
        assert!(find("env:NOT_SET_AT_ALL").contains("NOT_SET_AT_ALL is not set"));
    }

    #[test]
    fn only_references_are_references() {
        for text in ["hunter2", "file:", "env:", "File:x", ""] {
            assert_eq!(SecretRef::parse(text), None, "{text}");
        }
        assert_eq!(SecretRef::parse("file:/a"), Some(SecretRef::File(Path::new("/a").into())));
    }
}
