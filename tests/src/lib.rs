//! The harness of the whole-system tests: the real `larder` binary between real clients and real
//! origins, each started for one test, on ports that the kernel chose.
//!
//! Not here: the tests; each file of `tests/tests` is one claim about the whole. Invariants: a test
//! needs nothing that another one started, waits only by polling with a deadline, and ends only
//! processes that it started itself.

pub mod client;
pub mod differ;
pub mod double;
pub mod forward;
pub mod larder;
pub mod metrics;
pub mod moto;
pub mod oracle;
pub mod poll;
pub mod process;
pub mod sigv4;
pub mod tools;
pub mod tree;
pub mod versity;
pub mod wire;

/// Whether the tests run at their full size: `LARDER_SLOW` is set, as by `cargo xtask test --slow`.
#[must_use]
pub fn slow() -> bool {
    std::env::var_os("LARDER_SLOW").is_some_and(|value| !value.is_empty() && value != "0")
}

/// One number for the default tier and one for the slow one.
#[must_use]
pub fn scaled<T>(default: T, slow_tier: T) -> T {
    if slow() { slow_tier } else { default }
}
