//! Encrypted objects, in whole gateways: what is read is what was put, at any border, and what was changed in the pools is told.

use super::*;
use crate::record::{Entry, Manifest};
use crate::seal::{CHUNK, How, Key, TAG};
use denc::{Decode, Encode};

fn plain(n: u64, seed: u8) -> Bytes {
    (0..n).map(|i| (i / 251) as u8 ^ (i as u8) ^ seed).collect()
}

/// Puts an object with a key; what opens it.
async fn put(gate: &Gate, bucket: &str, key: &str, data: &Bytes) -> Key {
    let clock = &gate.objects.clock;
    let object = Key::random(clock);
    let customer = Key::new(&[9; 32]).unwrap();
    let how = How::Customer(String::new());
    let sealed = customer.wrap(&object, how, (bucket, key), clock).unwrap();
    let mut body = Once(Some(data.clone()).filter(|d| !d.is_empty()));
    let body: crate::data::Body<'_> = &mut body;
    let store = &gate.objects.data;
    let length = Some(data.len() as u64);
    let to = (bucket, key);
    let mut blind = Blind;
    let taken = store.take(to, (body, Some(object.clone())), length, u64::MAX, &mut blind);
    let new = New {
        stored: taken.await.unwrap(),
        etag: String::new(),
        attributes: Attributes::default(),
        checksum: None,
        lock: Default::default(),
        sealed: Some(sealed),
    };
    gate.objects
        .put(bucket, key, new, &Terms::default())
        .await
        .unwrap();
    object
}

async fn range(gate: &Gate, entry: &Entry, (from, to): (u64, u64), key: &Key) -> Result<Vec<u8>> {
    let store = &gate.objects.data;
    let mut reader = store.reader(entry, (from, to), Some(key.clone())).await?;
    let mut all = Vec::new();
    while let Some(chunk) = reader.next().await? {
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}

fn gate() -> Gate {
    Gate::new(&Fake::new(1), 0)
}

#[test]
fn ranges_at_all_borders() {
    run(async {
        let gate = gate();
        let bucket = gate.make("b").await;
        for size in [
            0,
            1,
            CHUNK - 1,
            CHUNK,
            CHUNK + 1,
            STRIPE,
            STRIPE + 1,
            2 * STRIPE + 3 * CHUNK + 7,
        ] {
            let data = plain(size, 3);
            let key = put(&gate, &bucket, "k", &data).await;
            let entry = gate.objects.entry(&bucket, "k").await.unwrap();
            assert_eq!(
                (entry.size, range(&gate, &entry, (0, size), &key).await.unwrap()),
                (size, data.to_vec())
            );
            let borders = [
                0,
                1,
                CHUNK - 1,
                CHUNK,
                CHUNK + 1,
                STRIPE - 1,
                STRIPE,
                STRIPE + 1,
                STRIPE + CHUNK,
                size,
            ];
            for from in borders {
                for to in [from + 1, from + CHUNK, from + (1 << 20) + 5, size] {
                    let (from, to) = (from.min(size), to.min(size));
                    if from < to {
                        let read = range(&gate, &entry, (from, to), &key).await.unwrap();
                        assert!(read == data[from as usize..to as usize], "{from} {to} of {size}");
                    }
                }
            }
        }
    });
}

#[test]
fn what_lies_in_the_pool_tells_nothing_and_old_gateways_cannot_read_it() {
    run(async {
        let gate = gate();
        let bucket = gate.make("b").await;
        let data = Bytes::from(vec![b'a'; 3 * CHUNK as usize]);
        put(&gate, &bucket, "k", &data).await;
        put(&gate, &bucket, "l", &data).await;
        let entry = gate.objects.entry(&bucket, "k").await.unwrap();
        assert_eq!(entry.to_bytes()[..2], [3, 3]);
        assert_eq!(Entry::from_bytes(&entry.to_bytes()).unwrap(), entry);
        {
            let world = gate.pool.lock();
            let stripes: Vec<&Bytes> = world
                .objects
                .iter()
                .filter(|(k, _)| k.ends_with(".0") && k.len() == 34)
                .map(|(_, o)| &o.data)
                .collect();
            assert_eq!(stripes.len(), 2);
            assert!(stripes[0] != stripes[1]);
            for stripe in stripes {
                assert_eq!(stripe.len() as u64, 3 * (CHUNK + TAG));
                assert!(!stripe.windows(16).any(|w| w == [b'a'; 16]));
            }
        }
        let store = &gate.objects.data;
        assert!(
            store.reader(&entry, (0, 5), None).await.is_err(),
            "never without its key"
        );
    });
}

#[test]
fn what_was_changed_is_told() {
    run(async {
        let gate = gate();
        let bucket = gate.make("b").await;
        let data = plain(STRIPE + 3 * CHUNK, 5);
        let key = put(&gate, &bucket, "k", &data).await;
        let entry = gate.objects.entry(&bucket, "k").await.unwrap();
        let Data::Stripes(tag, _) = entry.data else {
            panic!("{entry:?}")
        };
        let (first, second) = (format!("{tag}.0"), format!("{tag}.1"));
        let was = gate.pool.lock().objects.clone();
        let all = (0, entry.size);
        let width = (CHUNK + TAG) as usize;
        type Harm = fn(&mut Vec<u8>, &Bytes, usize);
        let harms: [(&str, Harm); 6] = [
            ("a bit", |d, _, _| d[100] ^= 1),
            ("cut off in a chunk", |d, _, _| d.truncate(d.len() - 1)),
            ("cut off between chunks", |d, _, w| d.truncate(d.len() - w)),
            ("chunks that changed places", |d, _, w| {
                let (a, b) = d.split_at_mut(w);
                a.swap_with_slice(&mut b[..w]);
            }),
            ("another stripe in its place", |d, other, _| {
                let n = d.len();
                d.copy_from_slice(&other[..n]);
            }),
            ("nothing", |d, _, _| d.clear()),
        ];
        for (what, harm) in harms {
            let mut stripe = was[&second].data.to_vec();
            harm(&mut stripe, &was[&first].data, width);
            gate.pool.lock().objects.get_mut(&second).unwrap().data = stripe.into();
            assert!(range(&gate, &entry, all, &key).await.is_err(), "{what}");
            gate.pool.lock().objects = was.clone();
        }
        assert_eq!(range(&gate, &entry, all, &key).await.unwrap(), data);
        let other = put(&gate, &bucket, "l", &data).await;
        assert!(
            range(&gate, &entry, all, &other).await.is_err(),
            "another object's key"
        );
    });
}

#[test]
fn parts_have_keys_of_their_own_and_an_order() {
    run(async {
        let gate = gate();
        let bucket = gate.make("b").await;
        let clock = &gate.objects.clock;
        let (object, customer) = (Key::random(clock), Key::new(&[8; 32]).unwrap());
        let how = How::Customer(String::new());
        let sealed = customer.wrap(&object, how, (&bucket, "k"), clock).unwrap();
        let begun = gate.objects.begin_upload(
            &bucket,
            "k",
            Attributes::default(),
            None,
            (Default::default(), Some(sealed)),
        );
        let id = begun.await.unwrap();
        let size = crate::multipart::PART_MIN;
        let parts = [plain(size, 1), plain(size, 2), plain(size, 1)];
        let mut named = Vec::new();
        for (n, data) in parts.iter().enumerate() {
            let mut body = Once(Some(data.clone()));
            let body: crate::data::Body<'_> = &mut body;
            let store = &gate.objects.data;
            let mut blind = Blind;
            let taken = store.take(
                (&bucket, "k"),
                (body, Some(object.clone())),
                Some(size),
                u64::MAX,
                &mut blind,
            );
            let number = n as u32 + 1;
            let stored = taken.await.unwrap();
            let put = gate
                .objects
                .put_part((&bucket, "k", &id), number, stored, format!("{n}"), None);
            put.await.unwrap();
            named.push(Named {
                number,
                etag: format!("{n}"),
                checksum: None,
            });
        }
        let whole = |_: &crate::record::Upload, _: &[(&Named, &crate::record::Part)]| {
            Ok(Whole {
                etag: "e".into(),
                checksum: None,
            })
        };
        let terms = Terms::default();
        let done = gate.objects.complete((&bucket, "k", &id), &named, &terms, whole);
        let entry = done.await.unwrap();
        let key = customer
            .unwrap(entry.sealed.as_ref().unwrap(), (&bucket, "k"))
            .unwrap()
            .unwrap();
        assert_eq!(
            range(&gate, &entry, (0, entry.size), &key).await.unwrap(),
            parts.concat()
        );
        let (from, to) = (size - 10, size + 10);
        let read = range(&gate, &entry, (from, to), &key).await.unwrap();
        assert_eq!(read, parts.concat()[from as usize..to as usize]);
        // The same bytes under the same key of an object lie there differently.
        let pieces = gate.objects.data.pieces_of(&entry).await.unwrap();
        let bytes_of = |n: usize| {
            gate.pool.lock().objects[&format!("{}.0", pieces[n].tag)]
                .data
                .clone()
        };
        assert!(bytes_of(0) != bytes_of(2));
        // Whoever can write to the data pool alone cannot change the order.
        let Data::Manifest(tag, _) = entry.data else {
            panic!("{entry:?}")
        };
        let swapped = Manifest {
            pieces: vec![pieces[1].clone(), pieces[0].clone(), pieces[2].clone()],
        };
        gate.pool
            .lock()
            .objects
            .get_mut(&format!("{tag}.m"))
            .unwrap()
            .data = swapped.to_bytes();
        assert!(range(&gate, &entry, (0, 10), &key).await.is_err());
    });
}
