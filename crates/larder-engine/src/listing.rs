//! Pages of listings that are served again for a while, where a dataset wants it.
//!
//! Invariant: a page is no older than the dataset's `list_cache`, counted from when the origin was
//! asked, and shows every write through us that was acknowledged before its reader arrived. While a
//! write is under way that a page could show, the origin is asked each time; when it is over, the
//! pages that could show it go, and what asks of them that are under way bring is not kept.

use crate::ReadError;
use crate::engine::{Engine, on_bucket};
use crate::fence::Reach;
use crate::ledger::Asked;
use crate::meters::Paging;
use crate::shelf::{Shelf, lock};
use larder_model::{BucketName, ListPage, ListRequest, Permit};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The pages of one dataset, and the asks that are under way.
pub(crate) struct Pages {
    limit_bytes: u64,
    bytes: u64,
    kept: HashMap<Arc<ListRequest>, Kept>,
    /// By the tick of their asks: the oldest leave first.
    order: BTreeMap<u64, Arc<ListRequest>>,
    asks: HashMap<Arc<ListRequest>, Arc<Ask>>,
}

struct Kept {
    page: Arc<ListPage>,
    asked: Asked,
    bytes: u64,
}

/// One page that is being asked for.
struct Ask {
    asked: Asked,
    /// A write that it could show was answered since it began.
    barred: AtomicBool,
    result: watch::Receiver<Option<Result<Arc<ListPage>, ReadError>>>,
}

/// The asking task's end. Takes the ask off the board before anybody hears of the result, also when
/// the task dies.
struct Landing {
    shelf: Arc<Shelf>,
    request: Arc<ListRequest>,
    ask: Arc<Ask>,
    result: watch::Sender<Option<Result<Arc<ListPage>, ReadError>>>,
}

enum Look {
    Here(Arc<ListPage>),
    Coming(Arc<Ask>),
    /// A write is under way: go around.
    Around,
}

impl Pages {
    /// No page yet, and pages of about `limit_bytes` at most.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            bytes: 0,
            kept: HashMap::new(),
            order: BTreeMap::new(),
            asks: HashMap::new(),
        }
    }

    /// Lets go of the pages that could show a write.
    pub(crate) fn let_go(&mut self, reach: &Reach) {
        let shown = |request: &ListRequest| reach.shows(&request.bucket, &request.prefix);
        self.asks.retain(|request, ask| {
            let stays = !shown(request);
            if !stays {
                ask.barred.store(true, Ordering::Release);
            }
            stays
        });
        let gone: Vec<_> = self.kept.keys().filter(|request| shown(request)).cloned().collect();
        gone.iter().for_each(|request| self.drop_page(request));
    }

    fn keep(&mut self, request: &Arc<ListRequest>, page: &Arc<ListPage>, asked: Asked) {
        self.drop_page(request);
        let bytes = cost(request, page);
        if bytes > self.limit_bytes {
            return;
        }
        self.bytes += bytes;
        self.order.insert(asked.tick, request.clone());
        self.kept.insert(request.clone(), Kept { page: page.clone(), asked, bytes });
        while self.bytes > self.limit_bytes {
            let Some(oldest) = self.order.first_key_value().map(|(_, request)| request.clone())
            else {
                return;
            };
            self.drop_page(&oldest);
        }
    }

    fn drop_page(&mut self, request: &ListRequest) {
        if let Some(kept) = self.kept.remove(request) {
            self.bytes -= kept.bytes;
            self.order.remove(&kept.asked.tick);
        }
    }
}

impl Landing {
    /// Keeps the page, unless a write was answered since it was asked for, and tells it.
    fn land(self, result: Result<ListPage, ReadError>) {
        let result = result.map(Arc::new);
        let mut pages = lock(&self.shelf.pages);
        if let Ok(page) = &result
            && !self.ask.barred.load(Ordering::Acquire)
        {
            pages.keep(&self.request, page, self.ask.asked);
        }
        drop(pages);
        self.leave();
        self.result.send_replace(Some(result));
    }

    fn leave(&self) {
        let mut pages = lock(&self.shelf.pages);
        if pages.asks.get(&self.request).is_some_and(|ask| Arc::ptr_eq(ask, &self.ask)) {
            pages.asks.remove(&self.request);
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        // Whoever waits for a task that died sees the closed channel.
        self.leave();
    }
}

impl Engine {
    /// One page of keys at the origin. `request.bucket` is the origin's. What the caller may show of
    /// the page is the gateway's to decide. Where the dataset says `list_cache`, the page may be as
    /// old as that; otherwise the origin is asked each time.
    pub async fn list(&self, permit: &Permit, request: ListRequest) -> Result<ListPage, ReadError> {
        let shelf = self.bucket_shelf(permit, &request.bucket)?;
        match shelf.dataset.list_cache {
            Some(ttl) => shelf.list(Arc::new(request), ttl).await,
            None => shelf.list_now(&request).await,
        }
    }
}

impl Shelf {
    async fn list_now(&self, request: &ListRequest) -> Result<ListPage, ReadError> {
        let page = self.origin.list(request.clone()).await;
        page.map_err(|error| on_bucket(self, &request.bucket, error))
    }

    /// Cancel safe: the ask goes on without the reader, for the others.
    async fn list(
        self: &Arc<Self>,
        request: Arc<ListRequest>,
        ttl: Duration,
    ) -> Result<ListPage, ReadError> {
        let arrived = self.tick();
        let mut counted = false;
        loop {
            let (look, paging) = self.look_for_page(&request, ttl);
            if !std::mem::replace(&mut counted, true) {
                self.meters.paging(paging);
            }
            let ask = match look {
                Look::Here(page) => return Ok(page.as_ref().clone()),
                Look::Around => return self.list_now(&request).await,
                Look::Coming(ask) => ask,
            };
            let mut result = ask.result.clone();
            let landed = match result.wait_for(Option::is_some).await {
                Ok(landed) => landed.clone(),
                Err(_) => None,
            };
            // A reader who arrived after the ask began finds the page among those that are kept, if it
            // is young enough and no write was answered meanwhile.
            let good = ask.asked.tick > arrived;
            match landed {
                Some(Ok(page)) if good => return Ok(page.as_ref().clone()),
                Some(Err(error)) if good => return Err(error),
                Some(_) => {}
                None => {
                    let reason = "the task that asked it ended early".to_owned();
                    let origin = self.origin.name().clone();
                    return Err(ReadError::Unreachable { origin, reason });
                }
            }
        }
    }

    /// Whether a write is under way that such a page could show.
    fn written(&self, bucket: &BucketName, prefix: &str) -> bool {
        self.ledger().fences.above(bucket, prefix)
    }

    fn young(&self, asked: Asked, ttl: Duration) -> bool {
        let age = self.clock.now().millis_since(asked.at);
        age.is_some_and(|age| u128::from(age) <= ttl.as_millis())
    }

    /// The page, or the ask for it that is under way, or that begins now.
    fn look_for_page(
        self: &Arc<Self>,
        request: &Arc<ListRequest>,
        ttl: Duration,
    ) -> (Look, Paging) {
        let mut pages = lock(&self.pages);
        if self.written(&request.bucket, &request.prefix) {
            return (Look::Around, Paging::Around);
        }
        if let Some(kept) = pages.kept.get(request) {
            if self.young(kept.asked, ttl) {
                return (Look::Here(kept.page.clone()), Paging::Hit);
            }
            pages.drop_page(request);
        }
        if let Some(ask) = pages.asks.get(request) {
            return (Look::Coming(ask.clone()), Paging::Joined);
        }
        let (result, receiver) = watch::channel(None);
        let barred = AtomicBool::new(false);
        let ask = Arc::new(Ask { asked: self.asking(), barred, result: receiver });
        pages.asks.insert(request.clone(), ask.clone());
        drop(pages);
        let (shelf, request) = (self.clone(), request.clone());
        let landing = Landing { shelf: shelf.clone(), request, ask: ask.clone(), result };
        self.tasks.spawn(async move {
            let result = shelf.list_now(&landing.request).await;
            landing.land(result);
        });
        (Look::Coming(ask), Paging::Miss)
    }
}

/// About how much memory a page takes, with its request and its place in the tables.
fn cost(request: &ListRequest, page: &ListPage) -> u64 {
    const FIXED: usize = 512;
    const OBJECT: usize = 224;
    const PREFIX: usize = 48;
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let objects: usize = page
        .objects
        .iter()
        .map(|object| {
            let owner = object.owner.as_ref();
            let owner = owner.map_or(0, |owner| text(&owner.id) + text(&owner.display_name));
            let etag = object.etag.as_ref().map_or(0, |etag| etag.as_str().len());
            let sums: usize = object.checksum_algorithms.iter().map(|sum| sum.len() + 32).sum();
            OBJECT
                + object.key.as_str().len()
                + etag
                + owner
                + sums
                + text(&object.storage_class)
                + text(&object.checksum_type)
        })
        .sum();
    let prefixes: usize = page.common_prefixes.iter().map(|prefix| prefix.len() + PREFIX).sum();
    let ends = text(&page.next_marker) + text(&page.next_token);
    let asked = request.prefix.len()
        + text(&request.delimiter)
        + text(&request.marker)
        + text(&request.token)
        + text(&request.start_after);
    (FIXED + objects + prefixes + ends + asked) as u64
}

#[cfg(test)]
mod tests {
    use super::{Asked, Pages, cost};
    use crate::fence::Reach;
    use larder_model::{BucketName, ListDialect, ListPage, ListRequest, ObjectKey, Timestamp};
    use std::sync::Arc;

    fn request(prefix: &str) -> Arc<ListRequest> {
        Arc::new(ListRequest {
            bucket: BucketName::new("bucket").unwrap(),
            dialect: ListDialect::V2,
            prefix: prefix.to_owned(),
            delimiter: None,
            max_keys: 1000,
            marker: None,
            token: None,
            start_after: None,
            fetch_owner: false,
        })
    }

    fn keep(pages: &mut Pages, prefix: &str, tick: u64) {
        pages.keep(&request(prefix), &Arc::default(), Asked { tick, at: Timestamp(tick) });
    }

    fn kept(pages: &Pages) -> Vec<&str> {
        let mut kept: Vec<_> = pages.kept.keys().map(|request| request.prefix.as_str()).collect();
        kept.sort_unstable();
        kept
    }

    #[test]
    fn pages_are_bounded_in_bytes_and_the_oldest_leave_first() {
        let one = cost(&request("a"), &ListPage::default());
        let mut pages = Pages::new(2 * one);
        keep(&mut pages, "a", 1);
        keep(&mut pages, "b", 2);
        keep(&mut pages, "a", 3);
        keep(&mut pages, "c", 4);
        assert_eq!((kept(&pages), pages.bytes, pages.order.len()), (vec!["a", "c"], 2 * one, 2));
        let mut none = Pages::new(one - 1);
        keep(&mut none, "a", 1);
        assert!(none.kept.is_empty() && none.order.is_empty() && none.bytes == 0);
    }

    #[test]
    fn a_write_takes_the_pages_above_it_and_no_others() {
        let mut pages = Pages::new(1 << 20);
        for (at, prefix) in ["", "a/", "a/b", "b/"].into_iter().enumerate() {
            keep(&mut pages, prefix, at as u64 + 1);
        }
        let bucket = BucketName::new("bucket").unwrap();
        let keys = Some([ObjectKey::new("a/x").unwrap()].into());
        pages.let_go(&Reach { bucket, keys });
        assert_eq!(kept(&pages), ["a/b", "b/"]);
        assert_eq!(pages.order.len(), 2);
    }
}
