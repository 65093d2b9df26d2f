//! Cache policies: who stays, per dataset and node.
//!
//! What is here: the native policies `keep` and `lru`. What is not: any knowledge of stores, time
//! or threads; the engine drives a policy through [`larder_model::Policy`] and validates whatever
//! it says, so no policy can make a response wrong.

mod keep;
mod lru;
mod order;

pub use keep::Keep;
pub use lru::Lru;

use larder_model::{Policy, PolicyName, PolicySetup};

/// The names that [`builtin`] knows.
pub const BUILTIN: &[&str] = &["keep", "lru"];

/// The built-in policy of that name, or `None`.
#[must_use]
pub fn builtin(name: &PolicyName, setup: &PolicySetup) -> Option<Box<dyn Policy>> {
    match name.as_str() {
        "keep" => Some(Box::new(Keep::new(setup))),
        "lru" => Some(Box::new(Lru::new(setup))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{BUILTIN, builtin};
    use larder_model::{PolicyName, PolicySetup};

    #[test]
    fn every_built_in_answers_to_its_name() {
        let setup = PolicySetup { capacity_bytes: 1, seed: 0 };
        for name in BUILTIN {
            let name = PolicyName::new(name).unwrap();
            assert_eq!(builtin(&name, &setup).unwrap().describe().name, name);
        }
        assert!(builtin(&PolicyName::new("belady").unwrap(), &setup).is_none());
    }
}
