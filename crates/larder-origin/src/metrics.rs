//! The counter of requests that went to an origin.

use crate::ConfigError;
use http::Method;
use larder_model::{OriginName, RawRequest};
use prometheus::{IntCounterVec, Opts, Registry};

/// What is asked of an origin; the `operation` label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Head,
    Get,
    Put,
    Delete,
    Upload,
    List,
    ListBuckets,
    HeadBucket,
    BucketLocation,
    Copy,
    Post,
    Other,
}

impl Operation {
    /// What a request that is passed on does to the origin, roughly: an operation of multipart
    /// uploads is an `upload`, and a sub-resource is counted by its method.
    pub(crate) fn of(request: &RawRequest) -> Self {
        let asked = |name: &str| request.query.iter().any(|(asked, _)| asked == name);
        let upload = asked("uploads") || asked("uploadId");
        match request.method {
            _ if upload => Self::Upload,
            Method::GET => Self::Get,
            Method::HEAD => Self::Head,
            Method::PUT if request.headers.contains_key("x-amz-copy-source") => Self::Copy,
            Method::PUT => Self::Put,
            Method::DELETE => Self::Delete,
            Method::POST if asked("delete") => Self::Delete,
            Method::POST => Self::Post,
            _ => Self::Other,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Get => "get",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::Upload => "upload",
            Self::List => "list",
            Self::ListBuckets => "list_buckets",
            Self::HeadBucket => "head_bucket",
            Self::BucketLocation => "bucket_location",
            Self::Copy => "copy",
            Self::Post => "post",
            Self::Other => "other",
        }
    }
}

/// `larder_origin_requests_total{origin,operation,status}` of one origin. `status` is the HTTP
/// status, or `error` where there was no answer.
#[derive(Debug)]
pub(crate) struct Requests(IntCounterVec);

impl Requests {
    /// `origin` is a constant label, so that each origin registers a collector of its own.
    pub(crate) fn register(origin: &OriginName, registry: &Registry) -> Result<Self, ConfigError> {
        let opts =
            Opts::new("larder_origin_requests_total", "Requests to the origin, retries included")
                .const_label("origin", origin.as_str());
        let failed = |reason| ConfigError::Metrics { origin: origin.clone(), reason };
        let counter = IntCounterVec::new(opts, &["operation", "status"]).map_err(failed)?;
        registry.register(Box::new(counter.clone())).map_err(failed)?;
        Ok(Self(counter))
    }

    /// Counts one request; `None` when it got no answer.
    pub(crate) fn count(&self, operation: Operation, status: Option<u16>) {
        let status = status.map_or_else(|| "error".to_owned(), |status| status.to_string());
        self.0.with_label_values(&[operation.as_str(), &status]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::{Operation, Requests};
    use larder_model::OriginName;
    use prometheus::Registry;

    #[test]
    fn two_origins_share_a_registry_and_one_name_does_not() {
        let registry = Registry::new();
        let name = |name: &str| OriginName::new(name).unwrap();
        let one = Requests::register(&name("one"), &registry).unwrap();
        let two = Requests::register(&name("two"), &registry).unwrap();
        assert!(Requests::register(&name("one"), &registry).is_err());
        one.count(Operation::Get, Some(206));
        two.count(Operation::Get, None);
        let families = registry.gather();
        assert_eq!(families.len(), 1);
        assert_eq!(families[0].get_metric().len(), 2);
    }
}
