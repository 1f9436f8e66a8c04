//! Versions: random operations against a plain list of each key's versions, whatever splits, fails or dies meanwhile.

use super::*;
use crate::check::Check;
use crate::history::Found;
use crate::record::{Older, older_row};
use crate::version::Order;
use crate::version_list::Item as Listed;

/// As somebody knows of a version: its id, and its data; None: a delete marker.
type Known = (String, Option<Bytes>);
/// Newest first.
type Model = BTreeMap<String, Vec<Known>>;

fn terms(versioning: Versioning) -> Terms {
    Terms {
        versioning,
        ..Terms::default()
    }
}

impl Gate {
    pub(super) async fn put_version(
        &self,
        bucket: &str,
        key: &str,
        data: &Bytes,
        versioning: Versioning,
    ) -> Result<String> {
        let mut body = Once(Some(data.clone()));
        let (store, mut blind) = (&self.objects.data, Blind);
        let stored = store.take((bucket, key), (&mut body, None), None, u64::MAX, &mut blind);
        let new = New {
            stored: stored.await?,
            etag: "e".into(),
            attributes: Attributes::default(),
            checksum: None,
            lock: Default::default(),
            sealed: None,
        };
        let put = self.objects.put(bucket, key, new, &terms(versioning)).await?;
        Ok(put.version().to_string())
    }

    async fn remove_version(&self, bucket: &str, key: &str, id: &str) -> Result<crate::history::Deleted> {
        let which = Which::parse(Some(id)).unwrap();
        self.objects.delete(bucket, key, which, &Terms::default()).await
    }

    async fn read_version(&self, bucket: &str, key: &str, id: Option<&str>) -> Result<Option<Known>> {
        let which = Which::parse(id).unwrap();
        let entry = match self.objects.version(bucket, key, which).await? {
            Found::Object(entry) => entry,
            Found::Marker(version, _) => return Ok(Some((version.to_string(), None))),
            Found::Nothing => return Ok(None),
        };
        let reader = self.objects.data.reader(&entry, (0, entry.size), None);
        let mut reader = reader.await?;
        let mut all = Vec::new();
        while let Some(chunk) = reader.next().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(Some((entry.version().to_string(), Some(all.into()))))
    }

    async fn older(&self, bucket: &str, key: &str, id: &str) -> Older {
        let row = older_row(key, Order::parse(id).unwrap());
        let older = self.objects.index.get_one(bucket, key, row);
        older.await.unwrap().unwrap()
    }

    /// Keys with ids, whether each is a marker, and whether it is the latest; by pages.
    async fn list_all(&self, bucket: &str, mut asked: Listing) -> Vec<(String, String, bool, bool)> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let listed = self.objects.list_versions(bucket, &asked, after).await.unwrap();
            assert!(listed.items.len() <= asked.max);
            for item in listed.items {
                all.push(match item {
                    Listed::Version(v) => (v.key, v.entry.version().to_string(), v.marker, v.latest),
                    Listed::Prefix(prefix) => (prefix, String::new(), false, false),
                });
            }
            let Some((key, id)) = listed.next else { return all };
            asked.after = Some(key);
            after = id.map(|id| Which::parse(Some(&id)).unwrap());
        }
    }

    pub(super) async fn report(&self) -> crate::Report {
        let check = Check {
            objects: self.objects.clone(),
            buckets: self.buckets.clone(),
            topics: Topics::new(self.pool.clone(), self.objects.clock.clone()),
        };
        check.run(None).await.unwrap()
    }

    pub(super) async fn check(&self) -> crate::Report {
        let report = self.report().await;
        assert_eq!(report.problems, Vec::<String>::new());
        report
    }
}

/// A step of a gateway on keys of its own, which succeeds.
async fn step(gate: &Gate, bucket: &str, key: &str, versioning: Versioning, model: &mut Model) {
    let random = &gate.pool.random;
    let versions = model.entry(key.to_string()).or_default();
    let enabled = versioning == Versioning::Enabled;
    match random.below(12) {
        0..=4 => {
            let data = data_of(random.next());
            let id = gate.put_version(bucket, key, &data, versioning).await.unwrap();
            assert_eq!(id == "null", !enabled);
            versions.retain(|(known, _)| *known != id);
            versions.insert(0, (id, Some(data)));
        }
        5 | 6 => {
            let deleted = gate
                .objects
                .delete(bucket, key, Which::Current, &terms(versioning))
                .await
                .unwrap();
            match deleted.version.map(|v| v.to_string()) {
                Some(id) => {
                    assert!(deleted.marker && (id == "null") != enabled);
                    versions.retain(|(known, _)| *known != id);
                    versions.insert(0, (id, None));
                }
                None => {
                    assert_eq!(versioning, Versioning::Off);
                    versions.clear();
                }
            }
        }
        7..=9 if !versions.is_empty() => {
            let n = random.below(versions.len() as u64) as usize;
            let (id, data) = versions.remove(n);
            let deleted = gate.remove_version(bucket, key, &id).await.unwrap();
            assert!(deleted.there);
            assert_eq!(deleted.marker, data.is_none());
            let again = gate.remove_version(bucket, key, &id).await.unwrap();
            assert!(!again.there);
            assert_eq!(gate.read_version(bucket, key, Some(&id)).await.unwrap(), None);
        }
        _ => {
            let now = gate.read_version(bucket, key, None).await.unwrap();
            assert_eq!(now, versions.first().cloned(), "{key}");
            for (id, data) in versions.iter() {
                let read = gate.read_version(bucket, key, Some(id)).await.unwrap();
                assert_eq!(read, Some((id.clone(), data.clone())));
            }
        }
    }
    gate.tend().await;
}

async fn check_model(gate: &Gate, bucket: &str, model: &Model) -> usize {
    let mut want = Vec::new();
    for (key, versions) in model {
        for (n, (id, data)) in versions.iter().enumerate() {
            want.push((key.clone(), id.clone(), data.is_none(), n == 0));
        }
    }
    for max in [1, 3, 7, 1000] {
        assert_eq!(gate.list_all(bucket, listing(max)).await, want, "{max}");
    }
    let current = |(key, versions): (&String, &Vec<Known>)| {
        let (_, data) = versions.first()?;
        data.as_ref().map(|_| key.clone())
    };
    let current: Vec<String> = model.iter().filter_map(current).collect();
    assert_eq!(gate.names(bucket, listing(5)).await.unwrap(), current);
    let mut referred = 0;
    for (key, versions) in model {
        for (id, data) in versions {
            let read = gate.read_version(bucket, key, Some(id)).await.unwrap();
            assert_eq!(read, Some((id.clone(), data.clone())));
            referred += usize::from(data.is_some());
        }
    }
    let report = gate.check().await;
    assert_eq!((report.objects + report.older) as usize, referred);
    assert_eq!(report.markers as usize, want.len() - referred);
    referred
}

#[test]
fn versions_are_those_of_a_plain_list() {
    let mut split = 0;
    for seed in 1..=25 {
        run(async {
            let pool = Fake::new(seed);
            let gates: Vec<Gate> = (1..=3).map(|n| Gate::new(&pool, n)).collect();
            let bucket = gates[0].make("b").await;
            let mut models = vec![Model::new(); 3];
            use Versioning::{Enabled, Off, Suspended};
            for versioning in [Off, Enabled, Suspended, Enabled] {
                let work = async |n: usize, model: &mut Model| {
                    for _ in 0..60 {
                        let key = format!("k{}", pool.random.below(9) * 3 + n as u64);
                        step(&gates[n], &bucket, &key, versioning, model).await;
                    }
                };
                let [a, b, c] = &mut models[..] else {
                    unreachable!()
                };
                tokio::join!(work(0, a), work(1, b), work(2, c), async {
                    for _ in 0..6 {
                        gates[0].collect(900_000).await;
                    }
                });
                pool.pass(Duration::from_secs(61));
                gates[0].collect(900_000).await;
            }
            let all: Model = models.into_iter().flatten().collect();
            let referred = check_model(&Gate::new(&pool, 9), &bucket, &all).await;
            split += usize::from(shards(&pool, &bucket) > 1);
            gates[0].settle(referred).await;
            check_model(&gates[0], &bucket, &all).await;
            // All of it can be removed, one by one, and then the bucket.
            assert_eq!(gates[1].buckets.delete("b").await, Err(Error::BucketNotEmpty));
            for (key, versions) in &all {
                for (id, _) in versions {
                    let removed = gates[1].remove_version(&bucket, key, id);
                    assert!(removed.await.unwrap().there);
                }
            }
            assert_eq!(gates[2].check().await.bytes, 0);
            gates[1].buckets.delete("b").await.unwrap();
            gates[1].settle(0).await;
        });
    }
    assert!(split > 20, "{split}");
}

#[test]
fn writers_of_the_same_keys_lose_no_version() {
    for seed in 1..=25 {
        run(async {
            let pool = Fake::new(seed);
            let gates: Vec<Gate> = (1..=3).map(|n| Gate::new(&pool, n)).collect();
            let bucket = gates[0].make("b").await;
            let work = async |n: usize| {
                let (mut there, mut own) = (BTreeSet::new(), Vec::new());
                for _ in 0..50 {
                    let key = format!("k{}", pool.random.below(6));
                    match pool.random.below(6) {
                        0..=2 => {
                            let data = data_of(pool.random.next());
                            let put = gates[n].put_version(&bucket, &key, &data, Versioning::Enabled);
                            let id = put.await.unwrap();
                            own.push((key, id, Some(data)));
                        }
                        3 => {
                            let all = terms(Versioning::Enabled);
                            let deleted = gates[n].objects.delete(&bucket, &key, Which::Current, &all);
                            let version = deleted.await.unwrap().version.unwrap();
                            own.push((key, version.to_string(), None));
                        }
                        _ if own.is_empty() => {}
                        _ => {
                            let (key, id, _) = own.swap_remove(pool.random.below(own.len() as u64) as usize);
                            let removed = gates[n].remove_version(&bucket, &key, &id);
                            assert!(removed.await.unwrap().there, "{key} {id}");
                        }
                    }
                    gates[n].tend().await;
                }
                there.extend(own);
                there
            };
            let reads = async {
                for max in [2, 5, 1000] {
                    let all = gates[0].list_all(&bucket, listing(max)).await;
                    let ids: BTreeSet<_> = all.iter().map(|(key, id, ..)| (key, id)).collect();
                    assert_eq!(ids.len(), all.len(), "told twice");
                }
            };
            let (a, b, c, ()) = tokio::join!(work(0), work(1), work(2), reads);
            let mut want: BTreeMap<(String, String), Option<Bytes>> = BTreeMap::new();
            for (key, id, data) in a.into_iter().chain(b).chain(c) {
                want.insert((key, id), data);
            }
            let last = Gate::new(&pool, 9);
            pool.pass(Duration::from_secs(61));
            last.collect(900_000).await;
            let listed = last.list_all(&bucket, listing(4)).await;
            let told: BTreeSet<_> = listed
                .iter()
                .map(|(key, id, ..)| (key.clone(), id.clone()))
                .collect();
            assert_eq!(told, want.keys().cloned().collect());
            assert!(listed.is_sorted_by(|a, b| (&a.0, &a.1) < (&b.0, &b.1)));
            for ((key, id), data) in &want {
                let read = last.read_version(&bucket, key, Some(id)).await.unwrap();
                assert_eq!(read, Some((id.clone(), data.clone())));
            }
            last.check().await;
            last.settle(want.values().flatten().count()).await;
        });
    }
}

/// What is known of a version whose writer may not have heard of its end.
#[derive(Default)]
struct May {
    /// Acknowledged, and nobody asked for its removal.
    there: BTreeMap<(String, String), Option<Bytes>>,
    /// Its removal was acknowledged.
    gone: BTreeSet<(String, String)>,
}

async fn uncertain(gate: Gate, bucket: String, keys: Vec<String>, steps: usize, may: &mut May) {
    for _ in 0..steps {
        let random = &gate.pool.random;
        let key = keys[random.below(keys.len() as u64) as usize].clone();
        match random.below(8) {
            0..=3 => {
                let data = data_of(random.next());
                if let Ok(id) = gate.put_version(&bucket, &key, &data, Versioning::Enabled).await {
                    may.there.insert((key, id), Some(data));
                }
            }
            4 => {
                let all = terms(Versioning::Enabled);
                let deleted = gate.objects.delete(&bucket, &key, Which::Current, &all);
                if let Ok(deleted) = deleted.await {
                    let id = deleted.version.unwrap().to_string();
                    may.there.insert((key, id), None);
                }
            }
            5 | 6 => {
                let n = random.below(may.there.len().max(1) as u64) as usize;
                let some = may.there.keys().nth(n).cloned();
                let Some(of) = some else { continue };
                may.there.remove(&of);
                let removed = gate.remove_version(&bucket, &of.0, &of.1);
                if removed.await.is_ok() {
                    may.gone.insert(of);
                }
            }
            _ => {
                for ((key, id), data) in may.there.iter().take(3) {
                    if let Ok(read) = gate.read_version(&bucket, key, Some(id)).await {
                        assert_eq!(read, Some((id.clone(), data.clone())));
                    }
                }
            }
        }
        gate.tend().await;
    }
}

async fn check_may(gate: &Gate, bucket: &str, may: &May) {
    for ((key, id), data) in &may.there {
        let read = gate.read_version(bucket, key, Some(id)).await.unwrap();
        assert_eq!(read, Some((id.clone(), data.clone())));
    }
    for (key, id) in &may.gone {
        let read = gate.read_version(bucket, key, Some(id)).await.unwrap();
        assert_eq!(read, None, "{key} {id}");
    }
    let listed = gate.list_all(bucket, listing(5)).await;
    let told: BTreeSet<_> = listed
        .iter()
        .map(|(key, id, ..)| (key.clone(), id.clone()))
        .collect();
    assert!(may.there.keys().all(|of| told.contains(of)));
    assert!(may.gone.iter().all(|of| !told.contains(of)));
    let referred = listed.iter().filter(|(_, _, marker, _)| !marker).count();
    let report = gate.check().await;
    assert_eq!((report.objects + report.older) as usize, referred);
    gate.settle(referred).await;
    gate.check().await;
}

#[test]
fn acknowledged_versions_are_there_whatever_fails() {
    for seed in 1..=25 {
        run(async {
            let pool = Fake::new(seed);
            let bucket = Gate::new(&pool, 0).make("b").await;
            pool.lock().fails = [40, 12][seed as usize % 2];
            let mut mays: Vec<May> = (0..3).map(|_| May::default()).collect();
            let keys = |n: usize| (0..8).map(|i| format!("k{:02}", i * 3 + n)).collect();
            let work =
                |n: usize, may| uncertain(Gate::new(&pool, 1 + n as u64), bucket.clone(), keys(n), 80, may);
            let [a, b, c] = &mut mays[..] else { unreachable!() };
            tokio::join!(work(0, a), work(1, b), work(2, c));
            pool.lock().fails = 0;
            let mut all = May::default();
            for may in mays {
                all.there.extend(may.there);
                all.gone.extend(may.gone);
            }
            check_may(&Gate::new(&pool, 9), &bucket, &all).await;
        });
    }
}

#[test]
fn a_gateway_may_be_killed_at_any_point_of_a_versioned_bucket() {
    for seed in 1..=25 {
        run(async {
            let pool = Fake::new(seed);
            let bucket = Gate::new(&pool, 0).make("b").await;
            let keys: Vec<String> = (0..20).map(|i| format!("k{i:02}")).collect();
            let mut may = May::default();
            for gateway in 1..=6 {
                pool.lock().killed.insert(gateway, 60 + pool.random.below(400));
                let gate = Gate::new(&pool, gateway);
                tokio::select! {
                    () = uncertain(gate, bucket.clone(), keys.clone(), 200, &mut may) => {}
                    () = pool.death() => {}
                }
                pool.pass(Duration::from_secs(61));
            }
            check_may(&Gate::new(&pool, 9), &bucket, &may).await;
        });
    }
}

#[test]
fn what_lies_under_delete_markers_costs_a_listing_nothing() {
    run(async {
        let pool = Fake::new(1);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let enabled = terms(Versioning::Enabled);
        for n in 0..200 {
            gate.put_version(&bucket, "k", &data_of(n), Versioning::Enabled)
                .await
                .unwrap();
            let deleted = gate.objects.delete(&bucket, "k", Which::Current, &enabled);
            deleted.await.unwrap();
        }
        gate.put_version(&bucket, "z", &data_of(1), Versioning::Enabled)
            .await
            .unwrap();
        // From here on each operation counts.
        pool.lock().killed.insert(1, 6);
        assert_eq!(gate.names(&bucket, listing(10)).await.unwrap(), ["z"]);
        let found = gate.objects.version(&bucket, "k", Which::Current).await.unwrap();
        assert!(matches!(found, Found::Marker(..)));
        assert!(pool.lock().killed[&1] > 1);
        pool.lock().killed.clear();
        let all = gate.list_all(&bucket, listing(50)).await;
        assert_eq!(all.len(), 401);
        assert!(all[0].2 && all[0].3 && !all[1].2 && !all[1].3);
        gate.check().await;
    });
}

#[test]
fn a_key_with_more_versions_than_a_split_moves_keeps_nothing_from_being_split() {
    run(async {
        let pool = Fake::new(4);
        pool.lock().rows_max = 120;
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        for n in 0..150 {
            let put = async |key: String| {
                gate.put_version(&bucket, &key, &data_of(n), Versioning::Enabled)
                    .await
                    .unwrap();
                gate.tend().await;
            };
            put("k".into()).await;
            put(format!("{}{n:03}", ["a", "z"][n as usize % 2])).await;
        }
        assert!(shards(&pool, &bucket) > 3, "{}", shards(&pool, &bucket));
        assert_eq!(gate.list_all(&bucket, listing(100)).await.len(), 300);
        gate.check().await;
        gate.settle(300).await;
    });
}

#[test]
fn versions_are_listed_under_their_prefixes() {
    run(async {
        let pool = Fake::new(3);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        for key in ["a/1", "a/2", "b", "b/c/d", "\u{0}", "é/x"] {
            for n in 0..4 {
                gate.put_version(&bucket, key, &data_of(n), Versioning::Enabled)
                    .await
                    .unwrap();
                gate.tend().await;
            }
        }
        assert!(shards(&pool, &bucket) > 1);
        for max in [1, 2, 3, 1000] {
            let asked = |prefix: &str, delimiter: Option<&str>| Listing {
                prefix: prefix.into(),
                delimiter: delimiter.map(str::to_string),
                after: None,
                max,
            };
            let names = async |asked| {
                let all = gate.list_all(&bucket, asked).await;
                all.into_iter().map(|(key, ..)| key).collect::<Vec<_>>()
            };
            let four = |keys: &[&str]| {
                keys.iter()
                    .flat_map(|k| vec![k.to_string(); 4])
                    .collect::<Vec<_>>()
            };
            let mut want = four(&["\u{0}"]);
            want.push("a/".into());
            want.extend(four(&["b"]));
            want.extend(["b/".to_string(), "é/".to_string()]);
            assert_eq!(names(asked("", Some("/"))).await, want, "{max}");
            assert_eq!(names(asked("a/", Some("/"))).await, four(&["a/1", "a/2"]));
            assert_eq!(names(asked("b/", Some("/"))).await, ["b/c/"]);
            assert_eq!(names(asked("b", None)).await, four(&["b", "b/c/d"]));
        }
    });
}

/// A walk of a listing sees a version all the time that is there all the time, while those around it come and go.
#[test]
fn a_version_that_stays_is_listed_however_it_moves() {
    for seed in 1..=40 {
        run(async {
            let pool = Fake::new(seed);
            let (gate, reader) = (Gate::new(&pool, 1), Gate::new(&pool, 2));
            let bucket = gate.make("b").await;
            let enabled = Versioning::Enabled;
            let stays = gate
                .put_version(&bucket, "k", &data_of(1), enabled)
                .await
                .unwrap();
            let writes = async {
                for n in 0..30 {
                    let id = gate
                        .put_version(&bucket, "k", &data_of(n), enabled)
                        .await
                        .unwrap();
                    let removed = gate.remove_version(&bucket, "k", &id);
                    removed.await.unwrap();
                }
            };
            let reads = async {
                for _ in 0..20 {
                    let all = reader.list_all(&bucket, listing(1)).await;
                    let seen = all.iter().filter(|(_, id, ..)| *id == stays).count();
                    assert_eq!(seen, 1, "seed {seed}: {all:?}");
                }
            };
            tokio::join!(writes, reads);
        });
    }
}

/// The first bytes of records of one class: the version that wrote them, and the first that can read them.
fn written(pool: &Fake, class: u8) -> BTreeSet<[u8; 2]> {
    let world = pool.lock();
    let shards = world.objects.iter().filter(|(n, _)| n.matches('.').count() == 2);
    let rows = shards.flat_map(|(_, o)| o.omap.iter());
    let rows = rows.filter(|(row, _)| row.first() == Some(&class));
    rows.map(|(_, value)| [value[0], value[1]]).collect()
}

#[test]
fn a_bucket_without_versions_is_written_as_before_and_one_with_is_refused_by_who_knows_none() {
    run(async {
        let pool = Fake::new(8);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        for n in 0..40 {
            let key = format!("k{:02}", n % 30);
            gate.put(&bucket, &key, &data_of(n), &Terms::default())
                .await
                .unwrap();
            gate.tend().await;
        }
        let plain = Terms::default();
        let deleted = gate.objects.delete(&bucket, "k00", Which::Current, &plain);
        assert_eq!(deleted.await.unwrap().version, None);
        assert!(shards(&pool, &bucket) > 1);
        for (class, want) in [
            (b'!', Some([1, 1])),
            (b'e', Some([1, 1])),
            (b'h', None),
            (b'v', None),
        ] {
            assert_eq!(written(&pool, class), want.into_iter().collect(), "{class}");
        }
        // What was put before has an id, and stays below what follows.
        let new = gate
            .put_version(&bucket, "k01", &data_of(9), Versioning::Enabled)
            .await
            .unwrap();
        let all = gate.list_all(&bucket, listing(7)).await;
        let of_key: Vec<&str> = all
            .iter()
            .filter(|v| v.0 == "k01")
            .map(|v| v.1.as_str())
            .collect();
        assert_eq!(of_key, [new.as_str(), "null"]);
        assert_eq!(written(&pool, b'!'), BTreeSet::from([[1, 1], [2, 2]]));
        assert_eq!(written(&pool, b'e'), BTreeSet::from([[1, 1], [2, 2]]));
        // Shards that are split off say so, too.
        for n in 0..40 {
            gate.put_version(&bucket, &format!("k01{n:02}"), &data_of(n), Versioning::Enabled)
                .await
                .unwrap();
            gate.put_version(&bucket, &format!("k01{n:02}"), &data_of(n), Versioning::Enabled)
                .await
                .unwrap();
            gate.tend().await;
        }
        for (name, object) in &pool.lock().objects {
            let versions = object.omap.keys().any(|row| row.starts_with(b"v"));
            let state = object.omap.get(crate::record::STATE);
            assert!(!versions || state.is_some_and(|s| s[1] == 2), "{name}");
        }
        gate.check().await;
    });
}

#[test]
fn a_locked_version_stays_whatever_is_asked() {
    use crate::version::{Lock, Retention};
    run(async {
        let pool = Fake::new(5);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let now = gate.objects.clock.now_ms();
        let lock = |compliance, hold| Lock {
            retention: Some(Retention {
                compliance,
                until: now + 1000,
            }),
            hold,
        };
        let put = async |key: &str, lock: Lock, terms: &Terms| {
            let mut body = Once(Some(data_of(1)));
            let (store, mut blind) = (&gate.objects.data, Blind);
            let stored = store.take((&bucket, key), (&mut body, None), None, u64::MAX, &mut blind);
            let new = New {
                stored: stored.await.unwrap(),
                etag: "e".into(),
                attributes: Attributes::default(),
                checksum: None,
                lock,
                sealed: None,
            };
            let put = gate.objects.put(&bucket, key, new, terms).await?;
            Ok::<_, Error>(put.version().to_string())
        };
        let enabled = terms(Versioning::Enabled);
        let bypass = Terms {
            bypass: true,
            ..Terms::default()
        };
        let remove = async |key: &str, id: &str, terms: &Terms| {
            let which = Which::parse(Some(id)).unwrap();
            gate.objects
                .delete(&bucket, key, which, terms)
                .await
                .map(|d| d.there)
        };
        for (key, lock, with_bypass) in [
            ("g", lock(false, false), true),
            ("c", lock(true, false), false),
            ("h", lock(false, true), false),
        ] {
            let id = put(key, lock, &enabled).await.unwrap();
            assert_eq!(remove(key, &id, &Terms::default()).await, Err(Error::Locked));
            // As an older version, too, and by a lifecycle.
            gate.objects
                .delete(&bucket, key, Which::Current, &enabled)
                .await
                .unwrap();
            assert_eq!(remove(key, &id, &Terms::default()).await, Err(Error::Locked));
            let Found::Object(entry) = gate
                .objects
                .version(&bucket, key, Which::parse(Some(&id)).unwrap())
                .await
                .unwrap()
            else {
                panic!("{key} is gone");
            };
            assert_eq!(entry.version().to_string(), id);
            let older = gate.older(&bucket, key, &id).await;
            assert_eq!(
                gate.objects.remove_seen(&bucket, key, (&older, 0)).await,
                Ok(false)
            );
            assert_eq!(remove(key, &id, &bypass).await.is_ok(), with_bypass, "{key}");
        }
        // Who writes without versioning does not replace it either.
        put("n", lock(true, false), &Terms::default()).await.unwrap();
        let off = Terms::default();
        assert_eq!(put("n", Lock::default(), &off).await, Err(Error::Locked));
        let deleted = gate.objects.delete(&bucket, "n", Which::Current, &off).await;
        assert_eq!(deleted, Err(Error::Locked));
        pool.pass(Duration::from_secs(2));
        assert_eq!(remove("n", "null", &off).await, Ok(true));
        let left = gate.list_all(&bucket, listing(10)).await;
        let of = |key: &str| left.iter().find(|v| v.0 == key && !v.2).map(|v| v.1.clone());
        let older = gate.older(&bucket, "c", &of("c").unwrap()).await;
        assert_eq!(
            gate.objects.remove_seen(&bucket, "c", (&older, 0)).await,
            Ok(true)
        );
        assert_eq!(remove("c", &of("c").unwrap(), &off).await, Ok(false));
        assert_eq!(remove("h", &of("h").unwrap(), &off).await, Err(Error::Locked));
        assert_eq!(of("g"), None);
        gate.check().await;
        gate.settle(1).await;
    });
}

/// Beside a key with more rows than one operation removes nothing below it can be split off.
#[test]
fn a_part_that_cannot_be_split_is_told_of() {
    run(async {
        let pool = Fake::new(7);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let enabled = Versioning::Enabled;
        let (index, shard) = (&gate.objects.index, format!("index.{bucket}.0"));
        for n in 0..10 {
            let (key, data) = (format!("a{n}"), data_of(n));
            let put = gate.put_version(&bucket, &key, &data, enabled);
            put.await.unwrap();
        }
        gate.tend().await;
        assert!(!index.was_told(&shard));
        // As it may be where the gateway that counted was killed.
        for n in 0..150 {
            let data = data_of(n);
            let put = gate.put_version(&bucket, "k", &data, enabled);
            put.await.unwrap();
        }
        gate.tend().await;
        assert_eq!(shards(&pool, &bucket), 1);
        assert!(index.was_told(&shard));
    });
}

/// The version `null` is another one, and the newest, when the next page is asked for.
#[test]
fn a_listing_goes_on_where_it_was_whatever_becomes_of_null() {
    run(async {
        let pool = Fake::new(8);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let put = async |key: &str, n, versioning| {
            let put = gate.put_version(&bucket, key, &data_of(n), versioning).await;
            put.unwrap()
        };
        put("k", 1, Versioning::Off).await;
        let id = put("k", 2, Versioning::Enabled).await;
        put("z", 3, Versioning::Enabled).await;
        let page = gate
            .objects
            .list_versions(&bucket, &listing(2), None)
            .await
            .unwrap();
        let ids: Vec<String> = page
            .items
            .iter()
            .map(|item| match item {
                Listed::Version(v) => v.entry.version().to_string(),
                Listed::Prefix(_) => String::new(),
            })
            .collect();
        assert_eq!(ids, [id.as_str(), "null"]);
        let (after, marker) = page.next.unwrap();
        put("k", 4, Versioning::Suspended).await;
        let asked = Listing {
            after: Some(after),
            ..listing(2)
        };
        let which = marker.map(|id| Which::parse(Some(&id)).unwrap());
        let page = gate.objects.list_versions(&bucket, &asked, which).await.unwrap();
        let Listed::Version(first) = &page.items[0] else {
            panic!()
        };
        assert_eq!((first.key.as_str(), page.items.len()), ("z", 1));
    });
}

/// Newer ones may have gone since a lifecycle counted them.
#[test]
fn as_many_stay_as_a_lifecycle_keeps_whatever_goes_meanwhile() {
    run(async {
        let pool = Fake::new(6);
        let gate = Gate::new(&pool, 1);
        let bucket = gate.make("b").await;
        let enabled = Versioning::Enabled;
        let mut ids = Vec::new();
        for n in 0..10 {
            let put = gate.put_version(&bucket, "k", &data_of(n), enabled).await;
            ids.push(put.unwrap());
        }
        // Nine that are not the current one: the third to go by a rule that keeps six.
        let mut judged = Vec::new();
        for id in &ids[..3] {
            judged.push(gate.older(&bucket, "k", id).await);
        }
        let remove = async |n: usize, keep| {
            let removed = gate.objects.remove_seen(&bucket, "k", (&judged[n], keep)).await;
            removed.unwrap()
        };
        gate.remove_version(&bucket, "k", &ids[8]).await.unwrap();
        assert!(!remove(2, 6).await);
        assert!(remove(1, 6).await);
        // What was the current one counts from then on, and a delete marker that is it does not.
        let deleted = gate
            .objects
            .delete(&bucket, "k", Which::Current, &terms(enabled))
            .await;
        let marker = deleted.unwrap().version.unwrap().to_string();
        assert!(!remove(2, 7).await);
        for id in [&ids[9], &ids[7]] {
            gate.remove_version(&bucket, "k", id).await.unwrap();
        }
        assert!(!remove(2, 5).await && !remove(0, 6).await);
        assert!(remove(0, 5).await && remove(2, 4).await);
        let left = gate.list_all(&bucket, listing(20)).await;
        let left: Vec<&str> = left.iter().map(|v| v.1.as_str()).collect();
        assert_eq!(left, [&marker, &ids[6], &ids[5], &ids[4], &ids[3]]);
        gate.check().await;
        gate.settle(4).await;
    });
}

/// Without its delete marker the version below becomes the current one: both rows go, and what is below those is not looked at.
#[test]
fn a_head_goes_with_the_last_of_the_others() {
    for seed in 1..=40 {
        run(async {
            let pool = Fake::new(seed);
            let gates: Vec<Gate> = (1..=2).map(|n| Gate::new(&pool, n)).collect();
            let bucket = gates[0].make("b").await;
            let mut ids = Vec::new();
            for n in 0..2 {
                let data = data_of(n);
                let put = gates[0].put_version(&bucket, "k", &data, Versioning::Enabled);
                ids.push(put.await.unwrap());
            }
            let enabled = terms(Versioning::Enabled);
            let deleted = gates[0].objects.delete(&bucket, "k", Which::Current, &enabled);
            let marker = deleted.await.unwrap().version.unwrap().to_string();
            let (a, b) = tokio::join!(
                gates[0].remove_version(&bucket, "k", &marker),
                gates[1].remove_version(&bucket, "k", &ids[0])
            );
            assert!(a.unwrap().there && b.unwrap().there);
            let now = gates[1].read_version(&bucket, "k", None).await.unwrap();
            assert_eq!(now, Some((ids[1].clone(), Some(data_of(1)))));
            gates[0].check().await;
            assert_eq!(written(&pool, b'h'), BTreeSet::new());
        });
    }
}
