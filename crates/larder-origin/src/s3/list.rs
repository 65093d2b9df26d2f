//! LIST requests: keys asked for URL-encoded, since XML cannot hold every key, and told plain.

use super::failure::{Asked, Failure};
use super::{Dialect, Inner};
use crate::metrics::Operation;
use crate::{error, token};
use aws_sdk_s3::operation::list_objects::ListObjectsOutput;
use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::primitives::DateTime;
use aws_sdk_s3::types::{CommonPrefix, EncodingType, Object, Owner as SdkOwner};
use larder_model::{
    ETag, ListDialect, ListPage, ListRequest, ListedObject, ObjectKey, OriginError, Owner,
    Timestamp,
};
use percent_encoding::percent_decode_str;

impl Inner {
    /// One page.
    ///
    /// BOS has been seen to answer ListObjectsV2 with `IsTruncated` and no token: such a lister
    /// would loop for ever. There, V2 is asked as V1 and the tokens are ours; elsewhere, from the
    /// first page that lacks its token.
    pub(super) async fn list(&self, request: ListRequest) -> Result<ListPage, OriginError> {
        let what = format!("LIST of {}/{}", request.bucket, request.prefix.escape_debug());
        let _ticket = self.exchange.gate.enter().await?;
        let ours = request.token.as_deref().is_some_and(token::is_ours);
        let page = match (request.dialect, self.dialect) {
            (ListDialect::V1, _) => self.list_v1(&request, request.marker.as_deref()).await,
            (ListDialect::V2, Dialect::Bos) => self.list_v2_as_v1(&request).await,
            (ListDialect::V2, Dialect::S3 | Dialect::Oss) if ours => {
                self.list_v2_as_v1(&request).await
            }
            (ListDialect::V2, Dialect::S3 | Dialect::Oss) => self.list_v2(&request).await,
        };
        page.map_err(|(failure, attempts)| {
            failure.into_error(&self.exchange.origin, &what, Asked::default(), attempts)
        })
    }

    async fn list_v1(
        &self,
        request: &ListRequest,
        marker: Option<&str>,
    ) -> Result<ListPage, (Failure, u32)> {
        let send = |probe| {
            self.client
                .list_objects()
                .bucket(request.bucket.as_str())
                .prefix(&request.prefix)
                .set_delimiter(request.delimiter.clone())
                .set_marker(marker.map(str::to_owned))
                .max_keys(max_keys(request))
                .encoding_type(EncodingType::Url)
                .customize()
                .interceptor(probe)
                .send()
        };
        let (answer, _) = self.exchange.run(Operation::List, false, send).await?;
        let page = page_v1(answer);
        if page.truncated && request.max_keys > 0 {
            next(&page, marker)?;
        }
        Ok(page)
    }

    async fn list_v2(&self, request: &ListRequest) -> Result<ListPage, (Failure, u32)> {
        let send = |probe| {
            self.client
                .list_objects_v2()
                .bucket(request.bucket.as_str())
                .prefix(&request.prefix)
                .set_delimiter(request.delimiter.clone())
                .set_continuation_token(request.token.clone())
                .set_start_after(request.start_after.clone())
                .set_fetch_owner(request.fetch_owner.then_some(true))
                .max_keys(max_keys(request))
                .encoding_type(EncodingType::Url)
                .customize()
                .interceptor(probe)
                .send()
        };
        let (answer, _) = self.exchange.run(Operation::List, false, send).await?;
        let mut page = page_v2(answer);
        if !page.truncated || request.max_keys == 0 {
            return Ok(page);
        }
        if page.next_token.is_none() {
            tracing::debug!(origin = %self.exchange.origin, "a page without its token; V1 goes on");
            page.next_token = Some(token::encode(&next(&page, request.start_after.as_deref())?));
        }
        if page.next_token == request.token {
            return Err(nowhere());
        }
        Ok(page)
    }

    async fn list_v2_as_v1(&self, request: &ListRequest) -> Result<ListPage, (Failure, u32)> {
        let marker = match &request.token {
            Some(token) => Some(token::decode(token).ok_or_else(wrong_token)?),
            None => request.start_after.clone(),
        };
        let mut page = self.list_v1(request, marker.as_deref()).await?;
        if page.truncated && request.max_keys > 0 {
            page.next_token = Some(token::encode(&next(&page, marker.as_deref())?));
        }
        page.next_marker = None;
        if !request.fetch_owner {
            page.objects.iter_mut().for_each(|object| object.owner = None);
        }
        Ok(page)
    }
}

fn max_keys(request: &ListRequest) -> i32 {
    i32::try_from(request.max_keys.min(1000)).unwrap_or(1000)
}

fn wrong_token() -> (Failure, u32) {
    let reply = error::reply(400, "InvalidArgument", "The continuation token is not valid.");
    (Failure::Final(OriginError::Refused(reply)), 1)
}

/// Where the page behind a truncated one begins. A page that does not move on would be asked for
/// again and again. It may lie before `marker`: a common prefix does, when `marker` is inside it.
fn next(page: &ListPage, marker: Option<&str>) -> Result<String, (Failure, u32)> {
    let last = page.next_marker.clone().or_else(|| last_item(page));
    last.filter(|last| marker != Some(last.as_str())).ok_or_else(nowhere)
}

fn nowhere() -> (Failure, u32) {
    (Failure::wrong("a truncated page that leads nowhere"), 1)
}

fn last_item(page: &ListPage) -> Option<String> {
    let key = page.objects.last().map(|object| object.key.as_str().to_owned());
    key.max(page.common_prefixes.last().cloned())
}

fn page_v1(answer: ListObjectsOutput) -> ListPage {
    let plain = Plain::of(answer.encoding_type());
    ListPage {
        objects: plain.objects(answer.contents()),
        common_prefixes: plain.prefixes(answer.common_prefixes()),
        truncated: answer.is_truncated().unwrap_or(false),
        next_marker: answer
            .next_marker()
            .filter(|marker| !marker.is_empty())
            .and_then(|marker| plain.text(marker)),
        next_token: None,
    }
}

fn page_v2(answer: ListObjectsV2Output) -> ListPage {
    let plain = Plain::of(answer.encoding_type());
    ListPage {
        objects: plain.objects(answer.contents()),
        common_prefixes: plain.prefixes(answer.common_prefixes()),
        truncated: answer.is_truncated().unwrap_or(false),
        next_marker: None,
        // Tokens are opaque and are not encoded (S3 API, ListObjectsV2, EncodingType).
        next_token: answer.next_continuation_token.filter(|token| !token.is_empty()),
    }
}

/// Undoes the encoding that the answer says it has, which is not always the one asked for.
struct Plain {
    encoded: bool,
}

impl Plain {
    fn of(told: Option<&EncodingType>) -> Self {
        Self { encoded: matches!(told, Some(EncodingType::Url)) }
    }

    /// S3 encodes as HTML forms do: a blank may come as `+`, and a plus comes as `%2B`.
    fn text(&self, told: &str) -> Option<String> {
        if !self.encoded {
            return Some(told.to_owned());
        }
        let told = told.replace('+', " ");
        Some(percent_decode_str(&told).decode_utf8().ok()?.into_owned())
    }

    fn prefixes(&self, told: &[CommonPrefix]) -> Vec<String> {
        told.iter().filter_map(|prefix| self.text(prefix.prefix()?)).collect()
    }

    /// Keys that are no keys to us (not UTF-8, too long) cannot be asked for either; they are left
    /// out and logged.
    fn objects(&self, told: &[Object]) -> Vec<ListedObject> {
        let listed = |object| {
            let listed = self.object(object);
            if listed.is_none() {
                tracing::warn!(key = object.key(), "an object's key cannot be listed");
            }
            listed
        };
        told.iter().filter_map(listed).collect()
    }

    fn object(&self, told: &Object) -> Option<ListedObject> {
        Some(ListedObject {
            key: ObjectKey::new(self.text(told.key()?)?).ok()?,
            size: told.size().and_then(|size| u64::try_from(size).ok()).unwrap_or(0),
            etag: told.e_tag().and_then(ETag::new),
            last_modified: told.last_modified().and_then(timestamp),
            storage_class: told.storage_class().map(|class| class.as_str().to_owned()),
            owner: told.owner().map(owner),
            checksum_algorithms: told
                .checksum_algorithm()
                .iter()
                .map(|algorithm| algorithm.as_str().to_owned())
                .collect(),
            checksum_type: told.checksum_type().map(|kind| kind.as_str().to_owned()),
        })
    }
}

fn owner(told: &SdkOwner) -> Owner {
    Owner { id: told.id().map(str::to_owned), display_name: told.display_name().map(str::to_owned) }
}

/// Milliseconds since 1970; `None` for times before.
pub(super) fn timestamp(time: &DateTime) -> Option<Timestamp> {
    time.to_millis().ok().and_then(|millis| u64::try_from(millis).ok()).map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::Plain;

    #[test]
    fn keys_are_decoded_once_and_only_when_encoded() {
        let encoded = Plain { encoded: true };
        assert_eq!(encoded.text("a+b%2Bc%2Fd%01%D0%BA").as_deref(), Some("a b+c/d\u{1}к"));
        assert_eq!(encoded.text("%2541").as_deref(), Some("%41"));
        assert_eq!(encoded.text("%ff"), None);
        assert_eq!(Plain { encoded: false }.text("a+b%2B").as_deref(), Some("a+b%2B"));
    }
}
