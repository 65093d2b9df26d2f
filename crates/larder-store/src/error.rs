//! Why a store cannot be opened. Once it is open, failures are misses and counters.

use larder_model::PoolName;
use std::path::PathBuf;

/// The store cannot be opened. Each message names the place and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The cache directory holds something that this program did not write.
    #[error(
        "cache directory {path}: it is not empty and holds no `format` file, so it is not a cache \
         of Larder: choose another directory or empty it"
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// The cache directory was written by a version with another format.
    #[error(
        "cache directory {path}: written in format {found:?}, this version reads and writes \
         {expected:?}: empty the directory or choose another"
    )]
    Format {
        /// The directory.
        path: PathBuf,
        /// What its `format` file says.
        found: String,
        /// What it would have to say.
        expected: String,
    },
    /// Another process has the cache directory open.
    #[error(
        "cache directory {path}: another process is using it: stop that one or choose another \
         directory"
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A file or directory of the cache cannot be used.
    #[error("cache directory {path}: {what}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file system has no room for what is to be reserved.
    #[error(
        "cache directory {path}: {missing} bytes are missing for the files of its pool: free them, \
         lower cache.disk.capacity, or set cache.disk.reserve to false"
    )]
    NoRoom {
        /// The folder of the pool.
        path: PathBuf,
        /// How many bytes more it takes.
        missing: u64,
    },
    /// The pools ask for an SSD, but there is no directory for one.
    #[error("pool {pool} has {bytes} bytes of SSD, but no cache directory is configured")]
    NoDirectory {
        /// The pool.
        pool: PoolName,
        /// Its share.
        bytes: u64,
    },
    /// Two pools of one name.
    #[error("pool {pool} is configured twice")]
    Twice {
        /// The pool.
        pool: PoolName,
    },
    /// The block device of a pool cannot be opened.
    #[error("pool {pool}: cannot open its SSD regions: {reason}")]
    Device {
        /// The pool.
        pool: PoolName,
        /// What foyer said.
        reason: String,
    },
    /// The store's own threads cannot be started.
    #[error("cannot start the store's threads: {0}")]
    Threads(#[source] std::io::Error),
    /// The metrics are already registered, or their names clash.
    #[error("cannot register the store's metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}
