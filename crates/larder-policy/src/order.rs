//! A list of handles in an order, with everything in constant time: the bones of LRU and its kin.

use larder_model::Handle;

const NONE: Handle = Handle::MAX;

/// Links of one handle; `prev == next == own` never occurs, absent handles are marked.
#[derive(Clone, Copy)]
struct Link {
    prev: Handle,
    next: Handle,
    bytes: u32,
    listed: bool,
}

const ABSENT: Link = Link { prev: NONE, next: NONE, bytes: 0, listed: false };

/// Handles from front (oldest) to back (newest), 16 bytes each: handles are dense.
pub(crate) struct Order {
    links: Vec<Link>,
    front: Handle,
    back: Handle,
}

impl Order {
    pub(crate) fn new() -> Self {
        Self { links: Vec::new(), front: NONE, back: NONE }
    }

    /// Whether the handle is listed.
    pub(crate) fn contains(&self, handle: Handle) -> bool {
        self.links.get(handle as usize).is_some_and(|link| link.listed)
    }

    /// Puts the handle at the back, moving it there if it is listed already.
    pub(crate) fn push(&mut self, handle: Handle, bytes: u32) {
        self.remove(handle);
        let at = handle as usize;
        if self.links.len() <= at {
            self.links.resize(at + 1, ABSENT);
        }
        self.links[at] = Link { prev: self.back, next: NONE, bytes, listed: true };
        match self.back {
            NONE => self.front = handle,
            back => self.links[back as usize].next = handle,
        }
        self.back = handle;
    }

    /// Moves a listed handle to the back; any other is left alone.
    pub(crate) fn touch(&mut self, handle: Handle) {
        if self.contains(handle) && self.back != handle {
            self.push(handle, self.links[handle as usize].bytes);
        }
    }

    /// Takes the handle out and tells its bytes, if it was listed.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<u32> {
        let link = self.links.get(handle as usize).copied().filter(|link| link.listed)?;
        match link.prev {
            NONE => self.front = link.next,
            prev => self.links[prev as usize].next = link.next,
        }
        match link.next {
            NONE => self.back = link.prev,
            next => self.links[next as usize].prev = link.prev,
        }
        self.links[handle as usize] = ABSENT;
        Some(link.bytes)
    }

    /// From front to back, with bytes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, u32)> + '_ {
        let link =
            |handle: Handle| (handle != NONE).then(|| (handle, self.links[handle as usize].bytes));
        std::iter::successors(link(self.front), move |(handle, _)| {
            link(self.links[*handle as usize].next)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Order;
    use proptest::prelude::{any, prop, prop_assert_eq, proptest};

    proptest! {
        #[test]
        fn it_behaves_like_a_plain_list(steps in prop::collection::vec((0_u8..3, 0_u32..20), 0..200), seed in any::<u32>()) {
            let mut order = Order::new();
            let mut plain: Vec<(u32, u32)> = Vec::new();
            for (step, (what, handle)) in steps.into_iter().enumerate() {
                let at = plain.iter().position(|(h, _)| *h == handle);
                match what {
                    0 => {
                        let bytes = seed.wrapping_add(step as u32);
                        at.map(|at| plain.remove(at));
                        plain.push((handle, bytes));
                        order.push(handle, bytes);
                    }
                    1 => {
                        if let Some(at) = at {
                            let moved = plain.remove(at);
                            plain.push(moved);
                        }
                        order.touch(handle);
                    }
                    _ => {
                        let expected = at.map(|at| plain.remove(at).1);
                        prop_assert_eq!(order.remove(handle), expected);
                    }
                }
                prop_assert_eq!(order.contains(handle), plain.iter().any(|(h, _)| *h == handle));
                prop_assert_eq!(order.iter().collect::<Vec<_>>(), plain.clone());
            }
        }
    }
}
