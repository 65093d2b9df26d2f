//! What makes the table know less: objects that are gone, that changed, or that were written.

use super::slots::Freed;
use super::{Asked, Ledger, ObjectId, cost};
use crate::fence::{Fate, Reach};
use larder_model::{ObjectDigest, ObjectName, OriginName, Timestamp};

impl Ledger {
    /// Makes the next reader ask the origin, because this version turned out not to be current.
    pub(crate) fn doubt(&mut self, name: &ObjectName, digest: ObjectDigest) {
        if let Some(id) = self.by_name.get(name)
            && let Some(object) = &mut self.objects[*id as usize]
            && object.pinned.digest == digest
        {
            object.asked = Asked::default();
        }
    }

    /// Makes the next reader of each object ask the origin, if it was asked before this tick.
    pub(crate) fn doubt_all(&mut self, before: u64) {
        self.doubted_below = self.doubted_below.max(before);
    }

    /// Forgets an object that is not there any more, as far as an ask at `asked` can tell.
    pub(crate) fn forget(&mut self, name: &ObjectName, asked: Asked) -> Vec<Freed> {
        match self.by_name.get(name).copied() {
            Some(id) if self.object(id).is_some_and(|o| o.asked.tick <= asked.tick) => {
                self.drop_object(id)
            }
            _ => Vec::new(),
        }
    }

    /// Lets go of what was known before `tick` of the names that a write reached. After a change
    /// of a whole bucket, every object of the table is doubted and none removed: the table may be
    /// large, and such changes hardly ever touch bytes.
    pub(crate) fn let_go(
        &mut self,
        origin: &OriginName,
        reach: &Reach,
        fate: Fate,
        tick: u64,
    ) -> Vec<Freed> {
        let Some(keys) = &reach.keys else {
            self.doubt_all(tick);
            return Vec::new();
        };
        let mut freed = Vec::new();
        for key in keys {
            let name = ObjectName {
                origin: origin.clone(),
                bucket: reach.bucket.clone(),
                key: key.clone(),
                version_id: None,
            };
            for id in self.versions(&name) {
                match fate {
                    Fate::Gone => freed.extend(self.drop_object(id)),
                    Fate::Doubted => {
                        if let Some(object) = &mut self.objects[id as usize] {
                            object.asked = Asked::default();
                        }
                    }
                }
            }
        }
        freed
    }

    /// While the table is over its bound, drops objects: those without residents first, of these
    /// the longest unused among a few.
    pub(super) fn shrink(&mut self) -> Vec<Freed> {
        let mut freed = Vec::new();
        while self.table_bytes > self.table_limit && !self.by_name.is_empty() {
            const SAMPLE: usize = 16;
            let mut victim: Option<(bool, Timestamp, ObjectId)> = None;
            let mut seen = 0;
            for _ in 0..self.objects.len() {
                self.hand = (self.hand + 1) % self.objects.len() as ObjectId;
                if let Some(object) = &self.objects[self.hand as usize] {
                    let rank = (object.residents > 0, object.used_at, self.hand);
                    victim = Some(victim.map_or(rank, |best| best.min(rank)));
                    seen += 1;
                }
                if seen == SAMPLE {
                    break;
                }
            }
            match victim {
                Some((_, _, id)) => freed.extend(self.drop_object(id)),
                None => break,
            }
        }
        freed
    }

    /// Takes an object out of the table, with its blocks.
    fn drop_object(&mut self, id: ObjectId) -> Vec<Freed> {
        let freed = self.strip(id);
        if let Some(object) = self.objects[id as usize].take() {
            self.table_bytes = self.table_bytes.saturating_sub(cost(&object.pinned));
            self.by_name.remove(&object.pinned.name);
            self.unlink(&object.pinned.name, id);
            self.dirty.remove(&id);
            if self.recorded {
                self.gone.push(object.pinned.name.clone());
            }
            self.vacant.push(id);
        }
        freed
    }

    fn unlink(&mut self, name: &ObjectName, id: ObjectId) {
        if name.version_id.is_none() {
            return;
        }
        let key = keyed(name);
        if let Some(ids) = self.versioned.get_mut(&key) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.versioned.remove(&key);
            }
        }
    }

    /// The entries of a key: without a `versionId`, and with any.
    fn versions(&self, name: &ObjectName) -> Vec<ObjectId> {
        let plain = self.by_name.get(name).copied();
        let others = self.versioned.get(name).into_iter().flatten().copied();
        plain.into_iter().chain(others).collect()
    }
}

/// The name without its `versionId`.
pub(super) fn keyed(name: &ObjectName) -> ObjectName {
    ObjectName { version_id: None, ..name.clone() }
}

#[cfg(test)]
mod tests {
    use crate::fence::{Fate, Reach};
    use crate::ledger::{Asked, Ledger};
    use crate::pool::Pool;
    use larder_model::{
        BucketName, DatasetName, ETag, ObjectKey, ObjectMeta, ObjectName, OriginName, Pinned,
        Timestamp, VersionId,
    };
    use std::sync::Arc;

    const NOW: Timestamp = Timestamp(1);

    fn name(key: &str, version_id: Option<&str>) -> ObjectName {
        ObjectName {
            origin: OriginName::new("origin").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(key).unwrap(),
            version_id: version_id.map(|id| VersionId::new(id).unwrap()),
        }
    }

    fn knowing(names: &[ObjectName]) -> Ledger {
        let mut ledger = Ledger::new(Arc::new(Pool::new(1 << 20, 0.9, 0.5)), 1 << 20, false);
        for name in names {
            let meta = ObjectMeta {
                size: 10,
                etag: ETag::new("\"a\""),
                version_id: None,
                headers: http::HeaderMap::new(),
            };
            let dataset = DatasetName::new("data").unwrap();
            let pinned = Pinned::new(&dataset, name.clone(), Arc::new(meta), 64).unwrap();
            ledger.observe(Arc::new(pinned), Asked { tick: 1, at: NOW }, false);
        }
        ledger
    }

    fn let_go(ledger: &mut Ledger, key: Option<&str>, fate: Fate) {
        let keys = key.map(|key| [ObjectKey::new(key).unwrap()].into());
        let reach = Reach { bucket: BucketName::new("bucket").unwrap(), keys };
        ledger.let_go(&OriginName::new("origin").unwrap(), &reach, fate, 2);
    }

    #[test]
    fn a_write_removes_every_version_of_its_key() {
        let names = [name("a", None), name("a", Some("1")), name("a", Some("2")), name("b", None)];
        let mut ledger = knowing(&names);
        let_go(&mut ledger, Some("a"), Fate::Gone);
        let known: Vec<_> = names.iter().map(|n| ledger.find(n, NOW).is_some()).collect();
        assert_eq!(known, [false, false, false, true]);
        assert!(ledger.versioned.is_empty());
    }

    #[test]
    fn a_refused_write_leaves_the_object_in_doubt() {
        let mut ledger = knowing(&[name("a", Some("1"))]);
        let_go(&mut ledger, Some("a"), Fate::Doubted);
        let found = ledger.find(&name("a", Some("1")), NOW).unwrap();
        assert_eq!(found.asked, Asked::default());
    }

    #[test]
    fn a_change_of_the_bucket_doubts_what_was_known_before_it() {
        let mut ledger = knowing(&[name("a", None), name("b", None)]);
        let_go(&mut ledger, None, Fate::Gone);
        let a = name("a", None);
        assert_eq!(ledger.find(&a, NOW).unwrap().asked, Asked::default());
        let later = Asked { tick: 3, at: NOW };
        let pinned = ledger.find(&a, NOW).unwrap().pinned;
        ledger.observe(pinned, later, false);
        assert_eq!(ledger.find(&a, NOW).unwrap().asked, later);
    }
}
