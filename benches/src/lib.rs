//! What the benches share: an origin, a forwarder that delays, a load generator and the servers they compare.
//!
//! Nothing here is part of the product, and the product knows nothing of it: Larder is started as the real
//! binary, in its own process, and is spoken to over sockets alone. How each figure comes about is told in
//! `benches/README.md`.

pub mod client;
pub mod cold;
pub mod content;
pub mod direct;
pub mod forwarder;
pub mod hot;
pub mod larder;
pub mod load;
pub mod nginx;
pub mod origin;
pub mod process;
pub mod report;
pub mod signer;
pub mod ssd;
pub mod wire;
