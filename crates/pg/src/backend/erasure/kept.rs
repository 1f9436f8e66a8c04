//! Stripes that this primary has just written: whoever writes on next to them need not collect them.
//!
//! Invariants: what is kept is what all shards hold with the transaction that wrote it, and counts only while its object has that version. What a
//! write leaves as it was stays; a change that is no write (of attributes) has another version, and ends it.
//!
//! Bounds: [`OBJECTS_MAX`], of each the newest [`STRIPES_MAX`], and no stripe of more than [`STRIPE_MAX`].

use super::cut::Written;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use types::{EVersion, ObjectId};

const OBJECTS_MAX: usize = 16;
const STRIPES_MAX: usize = 4;
const STRIPE_MAX: usize = 64 << 10;

#[derive(Debug)]
struct One {
    version: EVersion,
    stripes: BTreeMap<u64, Bytes>,
    used: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Kept {
    objects: BTreeMap<ObjectId, One>,
    uses: u64,
}

impl Kept {
    pub fn clear(&mut self) {
        self.objects.clear();
    }

    /// An object was written: `before` and `version` are its versions then and now.
    pub fn keep(
        &mut self,
        oid: &ObjectId,
        (before, version): (EVersion, EVersion),
        w: &Written,
        stripe: u64,
    ) {
        let old = self.objects.remove(oid).filter(|one| one.version == before);
        let shown = match &w.base {
            Some((base, shown)) if base == oid => *shown,
            _ => 0,
        };
        if w.size.is_none() || stripe as usize > STRIPE_MAX {
            return;
        }
        let mut stripes = old.map_or_else(BTreeMap::new, |one| one.stripes);
        stripes.retain(|n, _| (n + 1) * stripe <= shown && !w.changed.contains_key(n));
        while stripes.len() > STRIPES_MAX / 2 {
            stripes.pop_first();
        }
        // A row of writes goes on behind its end.
        for (n, bytes) in w.changed.iter().rev().take(STRIPES_MAX - stripes.len()) {
            let zeros = || vec![0; stripe as usize];
            stripes.insert(*n, bytes.clone().unwrap_or_else(zeros).into());
        }
        self.uses += 1;
        let used = self.uses;
        self.objects.insert(
            oid.clone(),
            One {
                version,
                stripes,
                used,
            },
        );
        if self.objects.len() > OBJECTS_MAX
            && let Some(oldest) = self.objects.iter().min_by_key(|(_, one)| one.used)
        {
            let oldest = oldest.0.clone();
            self.objects.remove(&oldest);
        }
    }

    /// These stripes of an object that has this version now, behind one another. None: not all of them are kept.
    pub fn get(&self, oid: &ObjectId, version: EVersion, stripes: &Range<u64>) -> Option<Vec<u8>> {
        let one = self.objects.get(oid).filter(|one| one.version == version)?;
        let mut out = Vec::new();
        for n in stripes.clone() {
            out.extend_from_slice(one.stripes.get(&n)?);
        }
        Some(out)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use types::{HObject, NOSNAP};

    fn oid(n: u32) -> ObjectId {
        let none = Bytes::new();
        ObjectId::replicated(HObject::new(1, n, none.clone(), none, "a".into(), NOSNAP))
    }

    fn v(version: u64) -> EVersion {
        EVersion::new(1, version)
    }

    fn written(oid: &ObjectId, shown: u64, stripes: &[u64]) -> Written {
        Written {
            size: Some(1000),
            base: Some((oid.clone(), shown)),
            changed: stripes.iter().map(|n| (*n, Some(vec![*n as u8; 8]))).collect(),
        }
    }

    #[test]
    fn it_counts_for_the_version_that_was_written() {
        let (mut k, a) = (Kept::default(), oid(1));
        k.keep(&a, (v(1), v(2)), &written(&a, 1000, &[5]), 8);
        assert_eq!(k.get(&a, v(2), &(5..6)).unwrap(), [5; 8]);
        assert_eq!(k.get(&a, v(3), &(5..6)), None);
        assert_eq!(k.get(&a, v(2), &(5..7)), None, "not all of it");
        assert_eq!(k.get(&oid(2), v(2), &(5..6)), None);
        // What the next write leaves stays.
        k.keep(&a, (v(2), v(3)), &written(&a, 1000, &[6]), 8);
        assert_eq!(k.get(&a, v(3), &(5..7)).unwrap(), [[5; 8], [6; 8]].concat());
        // Something else was changed in between.
        k.keep(&a, (v(4), v(5)), &written(&a, 1000, &[7]), 8);
        assert_eq!(k.get(&a, v(5), &(6..7)), None);
        k.clear();
        assert_eq!(k.get(&a, v(5), &(7..8)), None);
    }

    #[test]
    fn what_is_cut_off_or_comes_from_elsewhere_is_not_kept() {
        let (mut k, a) = (Kept::default(), oid(1));
        let anew = |k: &mut Kept| k.keep(&a, (v(1), v(2)), &written(&a, 1000, &[5]), 8);
        anew(&mut k);
        k.keep(&a, (v(2), v(3)), &written(&a, 47, &[]), 8);
        assert_eq!(k.get(&a, v(3), &(5..6)), None, "its last byte is gone");
        anew(&mut k);
        k.keep(&a, (v(2), v(3)), &written(&a, 48, &[]), 8);
        assert!(k.get(&a, v(3), &(5..6)).is_some());
        anew(&mut k);
        k.keep(&a, (v(2), v(3)), &written(&oid(2), 1000, &[]), 8);
        assert_eq!(k.get(&a, v(3), &(5..6)), None, "it became a copy");
        anew(&mut k);
        let removed = Written {
            size: None,
            ..written(&a, 1000, &[5])
        };
        k.keep(&a, (v(2), v(3)), &removed, 8);
        assert_eq!(k.get(&a, v(3), &(5..6)), None);
    }

    #[test]
    fn few_are_kept_and_those_that_were_written_last() {
        let mut k = Kept::default();
        for n in 0..100u32 {
            let a = oid(n);
            k.keep(&a, (v(1), v(2)), &written(&a, 1000, &[1, 2, 3, 4, 5, 6]), 8);
        }
        assert_eq!(k.objects.len(), OBJECTS_MAX);
        let last = &k.objects[&oid(99)];
        assert_eq!(last.stripes.keys().copied().collect::<Vec<_>>(), [3, 4, 5, 6]);
        k.keep(&oid(99), (v(2), v(3)), &written(&oid(99), 1000, &[7, 8, 9]), 8);
        assert_eq!(
            k.objects[&oid(99)].stripes.keys().copied().collect::<Vec<_>>(),
            [5, 6, 8, 9]
        );
        let large = STRIPE_MAX as u64 + 1;
        k.keep(&oid(98), (v(2), v(3)), &written(&oid(98), 1000, &[7]), large);
        assert_eq!(k.get(&oid(98), v(3), &(7..8)), None);
    }
}
