//! Blocks under dense numbers: 16 bytes each, so that ten million of them are 160 MB.

use super::ObjectId;
use larder_model::{BlockKey, Handle};

/// What a slot stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Nothing; waiting to be minted again.
    Free,
    /// A block that is being fetched.
    Named,
    /// A block that has room and is on its way to the store.
    Storing,
    /// A block that the store has.
    Resident,
}

/// One block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) object: ObjectId,
    pub(crate) index: u32,
    pub(crate) bytes: u32,
    pub(crate) state: State,
    /// The policy said that it is not to be kept.
    pub(crate) refused: bool,
    /// Read since the sweep came by last.
    touched: bool,
}

/// A block that has to leave the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Freed {
    pub(crate) key: BlockKey,
    pub(crate) bytes: u64,
}

const FREE: Slot = Slot {
    object: ObjectId::MAX,
    index: 0,
    bytes: 0,
    state: State::Free,
    refused: false,
    touched: false,
};

/// All slots of a dataset.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<Handle>,
    hand: usize,
}

impl Slots {
    pub(crate) fn mint(&mut self, object: ObjectId, index: u32, bytes: u32) -> Handle {
        let slot = Slot { object, index, bytes, state: State::Named, ..FREE };
        match self.free.pop() {
            Some(handle) => {
                self.slots[handle as usize] = slot;
                handle
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as Handle - 1
            }
        }
    }

    /// The slot; free for a number that was never minted.
    pub(crate) fn get(&self, handle: Handle) -> Slot {
        self.find(handle).unwrap_or(FREE)
    }

    pub(crate) fn find(&self, handle: Handle) -> Option<Slot> {
        self.slots.get(handle as usize).copied()
    }

    pub(crate) fn set(&mut self, handle: Handle, state: State) {
        self.slots[handle as usize].state = state;
    }

    pub(crate) fn refuse(&mut self, handle: Handle) {
        if let Some(slot) = self.slots.get_mut(handle as usize) {
            slot.refused = true;
        }
    }

    /// Marks a resident as read; `false` for anything else.
    pub(crate) fn touch(&mut self, handle: Handle) -> bool {
        let slot = &mut self.slots[handle as usize];
        slot.touched = true;
        slot.state == State::Resident
    }

    pub(crate) fn release(&mut self, handle: Handle) {
        self.slots[handle as usize] = FREE;
        self.free.push(handle);
    }

    /// The next resident that was not read since the hand came by last (the second-chance order).
    /// Looks at a bounded number of slots, and takes any resident after that.
    pub(crate) fn sweep(&mut self) -> Option<Handle> {
        const PATIENCE: usize = 1024;
        const BOUND: usize = 65_536;
        for step in 0..self.slots.len().saturating_mul(2).min(BOUND) {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.hand];
            if slot.state == State::Resident {
                if !slot.touched || step > PATIENCE {
                    return Some(self.hand as Handle);
                }
                slot.touched = false;
            }
        }
        None
    }
}
