//! The traits through which the engine reaches origins, stores, the catalog, policies and time.
//!
//! Each is implemented by exactly one adapter crate and by in-memory doubles in the tests.

pub(crate) mod catalog;
pub(crate) mod clock;
pub(crate) mod origin;
pub(crate) mod policy;
pub(crate) mod store;
