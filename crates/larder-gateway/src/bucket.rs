//! HeadBucket, GetBucketLocation and ListBuckets.

use crate::fault::Fault;
use crate::gateway::{Call, Reply};
use crate::list::show_timestamp;
use crate::refusal::{Asked, read_fault};
use crate::rules::View;
use crate::xml::Xml;
use http::StatusCode;
use http::header::CONTENT_LENGTH;
use larder_model::{Action, BucketEntry, BucketName, OriginName, Permit, Timestamp};
use std::collections::BTreeMap;

/// The most buckets of one page (ListBuckets in the S3 API Reference).
const MAX_BUCKETS: usize = 10_000;

/// HEAD of a bucket.
pub(crate) async fn head(call: &Call<'_>, view: &View) -> Result<Reply, Fault> {
    let permit = view.permit().ok_or_else(Fault::access_denied)?;
    let bucket = permit.dataset().origin_bucket(&view.bucket);
    let found = call.reads.head_bucket(permit, &bucket).await;
    let mut headers = found.map_err(|error| read_fault(error, asked(view)))?;
    headers.remove(CONTENT_LENGTH);
    Ok(Reply { status: StatusCode::OK, headers, body: s3s::Body::empty() })
}

/// GET of a bucket's location. The default region is an empty element.
pub(crate) async fn location(call: &Call<'_>, view: &View) -> Result<Reply, Fault> {
    let permit = view.permit().ok_or_else(Fault::access_denied)?;
    let bucket = permit.dataset().origin_bucket(&view.bucket);
    let found = call.reads.bucket_location(permit, &bucket).await;
    let region = found.map_err(|error| read_fault(error, asked(view)))?;
    let mut xml = Xml::new();
    xml.root("LocationConstraint");
    xml.escape(&region);
    xml.close("LocationConstraint");
    Ok(Reply::xml(xml.finish()))
}

fn asked(view: &View) -> Asked<'static> {
    Asked { aliased: view.hidden_prefix().is_some(), ..Asked::default() }
}

/// GET of the service: the buckets in which the principal may read anything.
///
/// Dates, and the buckets under a wildcard, come from the origins, asked once each. An origin that
/// does not answer costs its dates; only where nothing else could be shown is it an error.
pub(crate) async fn list(call: &Call<'_>) -> Result<Reply, Fault> {
    let page = Page::parse(call)?;
    let (mut named, wildcards, origins) = readable(call);
    let mut shown: BTreeMap<BucketName, Option<Timestamp>> = BTreeMap::new();
    let mut failed = None;
    for (origin, permit) in origins {
        match call.reads.list_buckets(&permit).await {
            Ok(entries) => {
                for BucketEntry { name, created } in entries {
                    for known in
                        named.iter_mut().filter(|k| k.origin == origin && k.at_origin == name)
                    {
                        known.created = created;
                    }
                    let hidden =
                        call.rules.load().namespace.named_buckets().any(|(b, _)| *b == name);
                    if wildcards.contains(&origin) && !hidden {
                        shown.insert(name, created);
                    }
                }
            }
            Err(error) => {
                tracing::debug!(%origin, %error, "buckets of the origin are not known");
                failed = Some(error);
            }
        }
    }
    shown.extend(named.into_iter().map(|known| (known.name, known.created)));
    match failed {
        Some(error) if shown.is_empty() => Err(read_fault(error, Asked::default())),
        _ => Ok(Reply::xml(page.render(call, &shown))),
    }
}

/// A bucket that the configuration names outright.
struct Known {
    name: BucketName,
    origin: OriginName,
    at_origin: BucketName,
    created: Option<Timestamp>,
}

/// The named buckets that may be shown, the origins whose every bucket may be, and one permit for
/// each origin to be asked.
fn readable(call: &Call<'_>) -> (Vec<Known>, Vec<OriginName>, BTreeMap<OriginName, Permit>) {
    let rules = call.rules.load();
    let permit = |dataset| rules.grants.authorize(call.principal, dataset, Action::Read).ok();
    let mut origins = BTreeMap::new();
    let mut named = Vec::new();
    for (name, datasets) in rules.namespace.named_buckets() {
        let Some(permit) = datasets.iter().find_map(permit) else { continue };
        let dataset = permit.dataset().clone();
        named.push(Known {
            name: name.clone(),
            origin: dataset.origin.clone(),
            at_origin: dataset.origin_bucket(name),
            created: None,
        });
        origins.entry(dataset.origin.clone()).or_insert(permit);
    }
    let mut wildcards = Vec::new();
    for permit in rules.namespace.wildcards().iter().filter_map(permit) {
        let origin = permit.dataset().origin.clone();
        wildcards.push(origin.clone());
        origins.insert(origin, permit);
    }
    (named, wildcards, origins)
}

/// Which buckets of all are asked for.
struct Page<'q> {
    prefix: &'q str,
    /// Only names behind this one.
    after: &'q str,
    max: usize,
}

impl<'q> Page<'q> {
    fn parse(call: &Call<'q>) -> Result<Self, Fault> {
        let max = match call.query.get("max-buckets") {
            None => MAX_BUCKETS,
            Some(text) => {
                let number = text.parse().ok().filter(|n| (1..=MAX_BUCKETS).contains(n));
                number.ok_or_else(|| {
                    let message = "Argument max-buckets must be an integer between 1 and 10000";
                    Fault::invalid_argument(message, "max-buckets", text)
                })?
            }
        };
        let text = |name| call.query.get(name).unwrap_or_default();
        Ok(Self { prefix: text("prefix"), after: text("continuation-token"), max })
    }

    fn render(&self, call: &Call<'_>, shown: &BTreeMap<BucketName, Option<Timestamp>>) -> String {
        let mut xml = Xml::new();
        xml.root("ListAllMyBucketsResult");
        xml.open("Owner");
        xml.text("ID", call.principal.as_str());
        xml.text("DisplayName", call.principal.as_str());
        xml.close("Owner");
        xml.open("Buckets");
        let mut wanted = shown.iter().filter(|(name, _)| {
            name.as_str().starts_with(self.prefix) && name.as_str() > self.after
        });
        let mut last = None;
        for (name, created) in wanted.by_ref().take(self.max) {
            xml.open("Bucket");
            xml.text("Name", name.as_str());
            // The AWS command line needs a date, whatever it is.
            xml.text("CreationDate", &show_timestamp(created.unwrap_or_default()));
            xml.close("Bucket");
            last = Some(name);
        }
        xml.close("Buckets");
        if let (Some(last), Some(_)) = (last, wanted.next()) {
            xml.text("ContinuationToken", last.as_str());
        }
        if !self.prefix.is_empty() {
            xml.text("Prefix", self.prefix);
        }
        xml.close("ListAllMyBucketsResult");
        xml.finish()
    }
}
