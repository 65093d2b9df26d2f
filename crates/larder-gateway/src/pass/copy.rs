//! The source of a copy: read in the client's names, authorised, and told in the origin's.

use super::place::Place;
use crate::fault::Fault;
use crate::gateway::Call;
use crate::operation::X_AMZ_COPY_SOURCE;
use http::{HeaderMap, HeaderValue, StatusCode};
use larder_model::{Action, BucketName, ObjectKey, ObjectName, Permit, VersionId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What a key keeps in a header.
const KEPT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// `x-amz-copy-source`, taken apart.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    bucket: BucketName,
    key: ObjectKey,
    version_id: Option<VersionId>,
}

/// Finds what is to be copied to `place`, and puts it into the headers for the origin.
pub(super) fn find(
    call: &Call<'_>,
    asked: &HeaderMap,
    place: &Place,
    headers: &mut HeaderMap,
) -> Result<(Permit, ObjectName), Fault> {
    let mut values = asked.get_all(X_AMZ_COPY_SOURCE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(invalid("")) };
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| invalid(""))?;
    let Named { bucket, key, version_id } = parse(text)?;
    let rules = call.rules.load();
    let resolved = rules.namespace.resolve(&bucket, &key, version_id);
    let Some(resolved) = resolved else {
        let known = !rules.namespace.bucket(&bucket).is_empty();
        return Err(match known {
            true => Fault::access_denied(),
            false => Fault::no_such_bucket(bucket.as_str()),
        });
    };
    let permit = rules.grants.authorize(call.principal, &resolved.dataset, Action::Read);
    let permit = permit.map_err(|_| Fault::access_denied())?;
    let name = resolved.name;
    if name.origin != place.permit.dataset().origin {
        return Err(Fault::new(
            StatusCode::NOT_IMPLEMENTED,
            "NotImplemented",
            "The source and the target of this copy lie at different origins. Read the object and \
             write it instead.",
        ));
    }
    let mut source = format!("{}/{}", name.bucket, utf8_percent_encode(name.key.as_str(), KEPT));
    if let Some(id) = &name.version_id {
        source += &format!("?versionId={}", utf8_percent_encode(id.as_str(), KEPT));
    }
    let source = HeaderValue::try_from(source).map_err(|_| invalid(text))?;
    headers.insert(X_AMZ_COPY_SOURCE, source);
    Ok((permit, name))
}

/// `[/]BUCKET/KEY[?versionId=ID]`, percent-encoded.
fn parse(text: &str) -> Result<Named, Fault> {
    if text.starts_with("arn:") {
        return Err(Fault::new(
            StatusCode::NOT_IMPLEMENTED,
            "NotImplemented",
            "A copy's source is told by bucket and key here, not by the name of an access point.",
        ));
    }
    let decode = |part: &str| match percent_decode_str(part).decode_utf8() {
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => Err(invalid(text)),
    };
    let (path, version) = match text.split_once("?versionId=") {
        Some((path, version)) => (path, Some(decode(version)?)),
        None => (text, None),
    };
    // Some clients escape the slash behind the bucket as well.
    let path = decode(path)?;
    let path = path.strip_prefix('/').unwrap_or(&path);
    let (bucket, key) = path.split_once('/').ok_or_else(|| invalid(text))?;
    Ok(Named {
        bucket: BucketName::new(bucket).map_err(|_| invalid(text))?,
        key: ObjectKey::new(key).map_err(|_| invalid(text))?,
        version_id: match version {
            Some(id) => Some(VersionId::new(id).map_err(|_| invalid(text))?),
            None => None,
        },
    })
}

fn invalid(value: &str) -> Fault {
    Fault::invalid_argument(
        "Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
        X_AMZ_COPY_SOURCE.as_str(),
        value,
    )
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn check(text: &str, expected: Result<(&str, &str, Option<&str>), &str>) {
        let found = parse(text);
        let found = found.as_ref().map_err(crate::fault::Fault::code).map(|named| {
            let version = named.version_id.as_ref().map(larder_model::VersionId::as_str);
            (named.bucket.as_str(), named.key.as_str(), version)
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_source_is_a_bucket_a_key_and_maybe_a_version() {
        check("data/k", Ok(("data", "k", None)));
        check("/data/a/b", Ok(("data", "a/b", None)));
        check("data%2Fa%20b%2Bc", Ok(("data", "a b+c", None)));
        check("data//a", Ok(("data", "/a", None)));
        check("data/k?versionId=a%2Fb", Ok(("data", "k", Some("a/b"))));
        check("data/a%3FversionId=1", Ok(("data", "a?versionId=1", None)));
        check("data/../other/k", Ok(("data", "../other/k", None)));
        for text in ["", "/", "data", "data/", "/data/", "ab/k", "data/%ff", "data/k?versionId="] {
            check(text, Err("InvalidArgument"));
        }
        check("arn:aws:s3:us-east-1:1:accesspoint/a/object/k", Err("NotImplemented"));
    }
}
