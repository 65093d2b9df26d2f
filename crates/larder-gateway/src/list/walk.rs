//! One page of keys that a principal may see.
//!
//! Where everything under the prefix is readable, one page of the origin is passed through with its
//! own markers and tokens. Elsewhere the readable parts are walked in order, by position: a token of
//! ours is a key to go on behind, so that whole unreadable datasets are stepped over.
//!
//! Invariant: nothing leaves that the view does not show, whatever the origin answers; and a page
//! that says it is truncated has a position further on than the one that it was asked from.

use super::{Wish, incorrect_token};
use crate::fault::Fault;
use crate::reads::Reads;
use crate::refusal::{Asked, read_fault};
use crate::rules::{View, after};
use larder_model::{ListDialect, ListPage, ListRequest, ListedObject, ObjectKey, Permit};
use std::time::Duration;

/// The most origin requests that one request of a client may cause.
const MAX_ORIGIN_PAGES: u32 = 16;

/// When to come back to an origin that lists what it has listed before.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Begins each token of ours; what follows is the position, in hexadecimal digits.
const TOKEN_MARK: &str = "larder-1-";

/// A page as the client sees it; keys are the client's.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) objects: Vec<ListedObject>,
    pub(crate) common_prefixes: Vec<String>,
    pub(crate) truncated: bool,
    pub(crate) next_marker: Option<String>,
    pub(crate) next_token: Option<String>,
}

/// Collects the page that `wish` means.
pub(crate) async fn walk(reads: &dyn Reads, view: &View, wish: &Wish<'_>) -> Result<Page, Fault> {
    if wish.max_keys == 0 {
        return Ok(Page::default());
    }
    let hidden = view.hidden_prefix().unwrap_or_default();
    let prefix = format!("{hidden}{}", wish.prefix);
    let page = match (view.is_clear(&prefix), view.covering(&prefix)) {
        (true, Some(permit)) => pass(reads, view, wish, permit, hidden, prefix).await?,
        _ => Steps::new(reads, view, wish, hidden, prefix)?.run().await?,
    };
    Ok(reveal(page, hidden))
}

/// One page of the origin, all of it readable.
async fn pass(
    reads: &dyn Reads,
    view: &View,
    wish: &Wish<'_>,
    permit: &Permit,
    hidden: &str,
    prefix: String,
) -> Result<Page, Fault> {
    let under = |key: &str| format!("{hidden}{key}");
    // A token of ours may come from a page before the grants changed.
    let position = wish.token.and_then(read_token);
    let request = ListRequest {
        bucket: permit.dataset().origin_bucket(&view.bucket),
        dialect: wish.dialect,
        prefix: prefix.clone(),
        delimiter: wish.delimiter.map(str::to_owned),
        max_keys: wish.max_keys,
        marker: wish.marker.map(under),
        token: wish.token.filter(|_| position.is_none()).map(str::to_owned),
        start_after: position.or_else(|| wish.start_after.map(under)),
        fetch_owner: wish.fetch_owner,
    };
    let found = reads.list(permit, request).await.map_err(|error| fault(error, view))?;
    let last = last_of(&found);
    let ListPage { mut objects, mut common_prefixes, truncated, next_marker, next_token } = found;
    objects.retain(|object| object.key.as_str().starts_with(&prefix));
    common_prefixes.retain(|common| common.starts_with(&prefix));
    let v1 = wish.dialect == ListDialect::V1;
    // S3 tells a marker only where there is a delimiter; otherwise the last key is it.
    let next_marker = next_marker.or(last).filter(|_| v1 && truncated && wish.delimiter.is_some());
    let next_token = next_token.filter(|_| !v1 && truncated);
    // A truncated page without a way on would have a lister ask for the same page for ever.
    let truncated = truncated && (v1 || next_token.is_some());
    Ok(Page { objects, common_prefixes, truncated, next_marker, next_token })
}

/// A walk over the readable parts of what is asked for.
struct Steps<'a> {
    reads: &'a dyn Reads,
    view: &'a View,
    wish: &'a Wish<'a>,
    prefix: String,
    /// Everything up to and including this has been dealt with.
    position: String,
    pages_left: u32,
    page: Page,
}

/// Whether the walk goes on.
#[derive(PartialEq)]
enum Step {
    On,
    Full,
}

impl<'a> Steps<'a> {
    fn new(
        reads: &'a dyn Reads,
        view: &'a View,
        wish: &'a Wish<'a>,
        hidden: &str,
        prefix: String,
    ) -> Result<Self, Fault> {
        let position = match (wish.token, wish.marker.or(wish.start_after)) {
            (Some(token), _) => read_token(token).ok_or_else(incorrect_token)?,
            (None, Some(key)) => {
                let key = format!("{hidden}{key}");
                // The marker behind a common prefix is that prefix: all of it has been shown.
                match common_prefix(&key, &prefix, wish.delimiter) {
                    Some(common) if common == key && wish.marker.is_some() => after(&key),
                    _ => key,
                }
            }
            (None, None) => String::new(),
        };
        let pages_left = MAX_ORIGIN_PAGES;
        Ok(Self { reads, view, wish, prefix, position, pages_left, page: Page::default() })
    }

    async fn run(mut self) -> Result<Page, Fault> {
        for root in self.view.roots(&self.prefix) {
            let step = match common_prefix(&root, &self.prefix, self.wish.delimiter) {
                Some(common) => self.roll_up(common, root).await?,
                None => self.list(root).await?,
            };
            if step == Step::Full {
                self.page.truncated = true;
                match self.wish.dialect {
                    ListDialect::V1 => self.page.next_marker = Some(self.marker()),
                    ListDialect::V2 => self.page.next_token = Some(write_token(&self.position)),
                }
                break;
            }
        }
        Ok(self.page)
    }

    /// A readable part that lies below a delimiter shows as one common prefix, if there is
    /// anything in it: one key is asked for.
    async fn roll_up(&mut self, common: String, root: String) -> Result<Step, Fault> {
        if self.position >= after(&common) {
            return Ok(Step::On);
        }
        if self.is_full() {
            return Ok(Step::Full);
        }
        let Some(permit) = self.view.covering(&root) else { return Ok(Step::On) };
        let request = ListRequest { max_keys: 1, delimiter: None, ..self.request(permit, root) };
        let found = self.ask(permit, request).await?;
        if !found.objects.is_empty() {
            self.position = after(&common);
            self.page.common_prefixes.push(common);
        }
        Ok(Step::On)
    }

    async fn list(&mut self, root: String) -> Result<Step, Fault> {
        if self.position.as_str() >= after(&root).as_str() {
            return Ok(Step::On);
        }
        let Some(permit) = self.view.covering(&root) else { return Ok(Step::On) };
        loop {
            if self.is_full() {
                return Ok(Step::Full);
            }
            let request = self.request(permit, root.clone());
            let found = self.ask(permit, request).await?;
            let truncated = found.truncated;
            let last = last_of(&found);
            let before = self.position.clone();
            if self.take(found) == Step::Full {
                return Ok(Step::Full);
            }
            let Some(last) = last.filter(|_| truncated) else { return Ok(Step::On) };
            let end = match self.view.skip_from(&last) {
                Some(further) if further > last => further,
                _ => last,
            };
            if end <= before {
                tracing::warn!(position = %end, "the origin lists the same page again");
                let message = "The origin does not list its keys in order.";
                return Err(Fault::unavailable("ServiceUnavailable", message, RETRY_AFTER));
            }
            self.position = end;
        }
    }

    /// Takes what may be shown, in order, until the page is full.
    fn take(&mut self, found: ListPage) -> Step {
        let mut objects = found.objects.into_iter().peekable();
        let mut prefixes = found.common_prefixes.into_iter().peekable();
        loop {
            let object_first = match (objects.peek(), prefixes.peek()) {
                (None, None) => return Step::On,
                (Some(object), Some(prefix)) => object.key.as_str() < prefix.as_str(),
                (object, _) => object.is_some(),
            };
            let seen = self.page.objects.len() + self.page.common_prefixes.len();
            if seen >= self.wish.max_keys as usize {
                return Step::Full;
            }
            if object_first {
                let Some(object) = objects.next() else { continue };
                if object.key.as_str() > self.position.as_str() {
                    self.position = object.key.as_str().to_owned();
                    if self.shows(&object.key) {
                        self.page.objects.push(object);
                    }
                }
            } else {
                let Some(prefix) = prefixes.next() else { continue };
                let end = after(&prefix);
                if end > self.position {
                    self.position = end;
                    if prefix.starts_with(&self.prefix) && self.view.shows_prefix(&prefix) {
                        self.page.common_prefixes.push(prefix);
                    }
                }
            }
        }
    }

    fn shows(&self, key: &ObjectKey) -> bool {
        key.as_str().starts_with(&self.prefix) && self.view.shows_object(key)
    }

    fn is_full(&self) -> bool {
        let seen = self.page.objects.len() + self.page.common_prefixes.len();
        seen >= self.wish.max_keys as usize || self.pages_left == 0
    }

    fn request(&self, permit: &Permit, prefix: String) -> ListRequest {
        let v1 = self.wish.dialect == ListDialect::V1;
        // A position that lies before everything under the prefix need not be told.
        let position = Some(self.position.clone()).filter(|p| p.as_str() >= prefix.as_str());
        ListRequest {
            bucket: permit.dataset().origin_bucket(&self.view.bucket),
            dialect: self.wish.dialect,
            prefix,
            delimiter: self.wish.delimiter.map(str::to_owned),
            max_keys: super::MAX_KEYS,
            marker: position.clone().filter(|_| v1),
            token: None,
            start_after: position.filter(|_| !v1),
            fetch_owner: self.wish.fetch_owner,
        }
    }

    async fn ask(&mut self, permit: &Permit, request: ListRequest) -> Result<ListPage, Fault> {
        self.pages_left = self.pages_left.saturating_sub(1);
        self.reads.list(permit, request).await.map_err(|error| fault(error, self.view))
    }

    /// V1's marker: the position, or the common prefix that it lies behind, if that was shown.
    fn marker(&self) -> String {
        match self.page.common_prefixes.last() {
            Some(shown) if self.position == after(shown) => shown.clone(),
            _ => self.position.clone(),
        }
    }
}

/// The common prefix that `key` is rolled up into, if it is.
fn common_prefix(key: &str, prefix: &str, delimiter: Option<&str>) -> Option<String> {
    let delimiter = delimiter?;
    let at = key.strip_prefix(prefix)?.find(delimiter)?;
    key.get(..prefix.len() + at + delimiter.len()).map(str::to_owned)
}

fn last_of(page: &ListPage) -> Option<String> {
    let object = page.objects.last().map(|object| object.key.as_str());
    object.max(page.common_prefixes.last().map(String::as_str)).map(str::to_owned)
}

/// Takes the prefix that an alias hides off everything that the client gets to see.
fn reveal(mut page: Page, hidden: &str) -> Page {
    if hidden.is_empty() {
        return page;
    }
    let strip = |key: &str| key.strip_prefix(hidden).unwrap_or_default().to_owned();
    page.objects.retain_mut(|object| match ObjectKey::new(strip(object.key.as_str())) {
        Ok(key) => {
            object.key = key;
            true
        }
        // The object whose key is the hidden prefix itself has no name here.
        Err(_) => false,
    });
    page.common_prefixes = page.common_prefixes.iter().map(|p| strip(p)).collect();
    page.next_marker = page.next_marker.map(|marker| strip(&marker));
    page
}

fn fault(error: larder_engine::ReadError, view: &View) -> Fault {
    read_fault(error, Asked { aliased: view.hidden_prefix().is_some(), ..Asked::default() })
}

fn write_token(position: &str) -> String {
    use std::fmt::Write;
    let mut token = TOKEN_MARK.to_owned();
    for byte in position.bytes() {
        // Writing to a string cannot fail.
        let _ = write!(token, "{byte:02x}");
    }
    token
}

fn read_token(token: &str) -> Option<String> {
    let digits = token.strip_prefix(TOKEN_MARK)?;
    if digits.len() % 2 != 0 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let byte = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::{common_prefix, read_token, write_token};

    #[test]
    fn a_token_brings_its_position_back() {
        for position in ["", "a/b", "ключ\u{10ffff}"] {
            assert_eq!(read_token(&write_token(position)).as_deref(), Some(position));
        }
        for token in ["larder-1-0", "larder-1-zz", "larder-1-ff", "other", "larder-1-+f"] {
            assert_eq!(read_token(token), None, "{token}");
        }
    }

    #[test]
    fn keys_roll_up_to_the_first_delimiter_behind_the_prefix() {
        assert_eq!(common_prefix("a/b/c", "", Some("/")).as_deref(), Some("a/"));
        assert_eq!(common_prefix("a/b/c", "a/", Some("/")).as_deref(), Some("a/b/"));
        assert_eq!(common_prefix("a/b", "a/", Some("/")), None);
        assert_eq!(common_prefix("a/b", "x", Some("/")), None);
        assert_eq!(common_prefix("a/b", "", None), None);
    }
}
