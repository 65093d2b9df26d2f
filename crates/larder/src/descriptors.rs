//! The limit of open files: raised as far as it goes, and held against what the node needs.
//!
//! The SSD pools keep one file a region, and each connection is a descriptor (two, while it waits
//! for an origin).

use crate::config::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For the catalog, the logs, the runtime and the admin listener.
const OTHER_FILES: u64 = 256;

/// Raises the soft limit to the hard one, and warns where that is not enough.
pub(crate) fn raise(config: &Config) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "cannot raise the limit of open files");
        }
    }
    let needed = needed(config);
    if let Some(allowed) = getrlimit(Resource::Nofile).current
        && allowed < needed
    {
        tracing::warn!(
            allowed,
            needed,
            "the limit of open files may be too low; raise it (ulimit -n, LimitNOFILE) or lower \
             limits.connections or cache.disk.capacity"
        );
    }
}

fn needed(config: &Config) -> u64 {
    let regions: u64 = config.pools().iter().map(larder_store::region_files).sum();
    OTHER_FILES + 2 * u64::from(config.limits.connections) + regions
}
