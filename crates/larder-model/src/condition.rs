//! The conditions of a GET or HEAD, evaluated against a pinned object.

use crate::{ETag, ObjectMeta};

/// A list of tags, or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ETagCondition {
    /// `*`: any existing object.
    Any,
    /// One of these, compared without their quotes: S3 takes them with and without.
    Tags(Vec<String>),
}

impl ETagCondition {
    /// Reads an If-Match or If-None-Match header.
    #[must_use]
    pub fn parse(header: &str) -> Self {
        let header = header.trim();
        if header == "*" {
            return Self::Any;
        }
        let opaque = |tag: &str| tag.trim().trim_start_matches("W/").trim_matches('"').to_owned();
        Self::Tags(header.split(',').map(opaque).collect())
    }

    fn holds(&self, etag: Option<&ETag>) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => {
                etag.is_some_and(|etag| tags.iter().any(|tag| tag == etag.opaque()))
            }
        }
    }
}

/// The conditional headers of one request. Times are seconds since 1970, as HTTP dates are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// If-Match.
    pub if_match: Option<ETagCondition>,
    /// If-None-Match.
    pub if_none_match: Option<ETagCondition>,
    /// If-Modified-Since.
    pub if_modified_since: Option<i64>,
    /// If-Unmodified-Since.
    pub if_unmodified_since: Option<i64>,
    /// If-Range: the range is meant for this state of the object only.
    pub if_range: Option<IfRange>,
}

/// The value of an If-Range header (RFC 9110 §13.1.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfRange {
    /// This tag, without its quotes.
    Tag(String),
    /// Unmodified since this time, in seconds since 1970.
    Date(i64),
    /// Neither a strong tag nor a date: never true.
    Never,
}

/// What the conditions say of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Serve it.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    PreconditionFailed,
}

impl Conditions {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Evaluates in the order of RFC 9110 §13.2.2, which S3 follows ("GetObject", remarks): a true
    /// If-Match beats If-Unmodified-Since, a false If-None-Match beats If-Modified-Since.
    ///
    /// Without a Last-Modified of the object, the date conditions hold.
    #[must_use]
    pub fn evaluate(&self, meta: &ObjectMeta) -> Verdict {
        let etag = meta.etag.as_ref();
        let last_modified = meta.last_modified();
        let newer_than = |since: i64| last_modified.is_some_and(|modified| modified > since);
        match (&self.if_match, self.if_unmodified_since) {
            (Some(wanted), _) if !wanted.holds(etag) => return Verdict::PreconditionFailed,
            (None, Some(since)) if newer_than(since) => return Verdict::PreconditionFailed,
            _ => {}
        }
        match (&self.if_none_match, self.if_modified_since) {
            (Some(unwanted), _) if unwanted.holds(etag) => Verdict::NotModified,
            (None, Some(since)) if last_modified.is_some() && !newer_than(since) => {
                Verdict::NotModified
            }
            _ => Verdict::Proceed,
        }
    }

    /// Whether a Range header counts for this state of the object. Where it does not, the whole
    /// object is the answer: a client that resumes must not splice two versions.
    #[must_use]
    pub fn range_applies(&self, meta: &ObjectMeta) -> bool {
        match &self.if_range {
            None => true,
            Some(IfRange::Tag(tag)) => meta.etag.as_ref().is_some_and(|etag| etag.opaque() == tag),
            Some(IfRange::Date(date)) => meta.last_modified() == Some(*date),
            Some(IfRange::Never) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Conditions, ETagCondition, Verdict};
    use crate::{ETag, ObjectMeta};
    use http::HeaderMap;

    fn check(conditions: &Conditions, expected: Verdict) {
        let etag = ETag::new("\"abc\"");
        let mut headers = HeaderMap::new();
        // 1970-01-01 00:16:40, second 1000.
        headers.insert("last-modified", "Thu, 01 Jan 1970 00:16:40 GMT".parse().unwrap());
        let meta = ObjectMeta { size: 1, etag, version_id: None, headers };
        assert_eq!(conditions.evaluate(&meta), expected, "{conditions:?}");
    }

    fn tag(header: &str) -> Option<ETagCondition> {
        Some(ETagCondition::parse(header))
    }

    #[test]
    fn tags_match_with_and_without_quotes() {
        for header in ["\"abc\"", "abc", "*", "\"x\", \"abc\""] {
            check(&Conditions { if_match: tag(header), ..Conditions::default() }, Verdict::Proceed);
            check(
                &Conditions { if_none_match: tag(header), ..Conditions::default() },
                Verdict::NotModified,
            );
        }
        check(
            &Conditions { if_match: tag("\"ABC\""), ..Conditions::default() },
            Verdict::PreconditionFailed,
        );
    }

    #[test]
    fn a_true_if_match_beats_if_unmodified_since() {
        let conditions = Conditions {
            if_match: tag("abc"),
            if_unmodified_since: Some(10),
            ..Conditions::default()
        };
        check(&conditions, Verdict::Proceed);
    }

    #[test]
    fn a_false_if_none_match_beats_if_modified_since() {
        let conditions = Conditions {
            if_none_match: tag("other"),
            if_modified_since: Some(5000),
            ..Conditions::default()
        };
        check(&conditions, Verdict::Proceed);
    }

    #[test]
    fn dates_compare_to_the_second() {
        let unmodified =
            |since| Conditions { if_unmodified_since: Some(since), ..Conditions::default() };
        let modified =
            |since| Conditions { if_modified_since: Some(since), ..Conditions::default() };
        check(&unmodified(1000), Verdict::Proceed);
        check(&unmodified(999), Verdict::PreconditionFailed);
        check(&modified(1000), Verdict::NotModified);
        check(&modified(999), Verdict::Proceed);
    }
}
