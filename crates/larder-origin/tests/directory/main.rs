//! The directory origin: what is served, what is written, and what never gets out.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics, also in its helpers")]

mod change;
mod fixture;
mod inside;
mod raw;
mod read;
mod sweep;
mod upload;
mod write;
