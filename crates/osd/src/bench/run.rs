//! A bench's steps in the loop.

use super::{Asked, Bench, Limits, submit};
use crate::asker::Asker;
use crate::command::table::{Answer, Told};
use crate::osd::Osd;
use serde_json::json;
use std::collections::VecDeque;
use std::time::Duration;
use types::{Errno, Op};

impl Osd {
    /// Begins one.
    pub fn bench(&mut self, asked: Asked, asker: Asker) -> Answer {
        let refuse = |errno, why: &str| Err((errno, why.to_string()));
        Limits::of(|name| self.option(name))
            .check(&asked)
            .map_err(|why| (Errno::EINVAL, why))?;
        if self.bench.is_some() {
            return refuse(Errno::EBUSY, "a bench runs on this OSD already");
        }
        if self.store.engine.collections().contains(&Bench::collection()) {
            return refuse(Errno::EBUSY, "what an earlier bench left behind is being removed");
        }
        let (total, available) = crate::report::space(&self.store.engine.statfs(), self.disk_share);
        if asked.room().saturating_add(total / 20) > available {
            return refuse(
                Errno::ENOSPC,
                "there is not enough room for so much on this OSD's disk",
            );
        }
        let mut data = vec![0; asked.block.min(asked.bytes) as usize];
        self.random.fill(&mut data);
        submit(&mut self.store, vec![Op::CreateCollection])
            .map_err(|e| (e, "the store does not take the bench's collection".to_string()))?;
        tracing::info!("osd.{}: bench: {asked:?}", self.id);
        self.bench = Some(Box::new(Bench {
            asked,
            asker,
            began: self.clock.monotonic(),
            data: data.into(),
            blocks: 0,
            of_block: 0,
            written: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            ended: None,
            removed: 0,
            collection_removed: false,
        }));
        Ok(Told::Later)
    }

    /// When the next step is due: at once, or when the store has made something durable.
    pub fn bench_timer(&self) -> Option<Duration> {
        let bench = self.bench.as_ref()?;
        bench
            .is_due(self.store.engine.durable())
            .then_some(Duration::ZERO)
    }

    /// One step of the bench that runs.
    pub fn bench_step(&mut self) {
        let durable = self.store.engine.durable();
        let Some(mut bench) = self.bench.take_if(|b| b.is_due(durable)) else {
            return;
        };
        bench.durable(durable);
        let outcome = match bench.ended {
            None if !bench.is_filled() => bench.fill(&mut self.store),
            None if bench.waiting.is_empty() => {
                let took = self.clock.monotonic().saturating_sub(bench.began);
                bench.ended = Some(Ok(took));
                Ok(())
            }
            None => Ok(()),
            Some(_) if !bench.collection_removed => bench.clean(&mut self.store),
            Some(outcome) => {
                if !bench.waiting.is_empty() {
                    self.bench = Some(bench);
                    return;
                }
                return self.bench_ended(&bench, outcome);
            }
        };
        if let Err(e) = outcome {
            tracing::warn!("osd.{}: bench: the store answers {e:?}", self.id);
            // What it could not remove is the reaper's.
            bench.collection_removed = bench.ended.is_some();
            bench.ended = Some(Err(e));
        }
        self.bench = Some(bench);
    }

    fn bench_ended(&mut self, bench: &Bench, outcome: Result<Duration, Errno>) {
        let answer = match outcome {
            Ok(took) => {
                let seconds = took.as_secs_f64().max(1e-9);
                let rate = bench.written as f64 / seconds;
                Ok(Told::Now(json!({
                    "bytes_written": bench.written,
                    "blocksize": bench.asked.block,
                    "elapsed_sec": took.as_secs_f64(),
                    "bytes_per_sec": rate,
                    "iops": rate / bench.asked.block.max(1) as f64,
                })))
            }
            Err(e) => Err((e, "the store refused a write of the bench".to_string())),
        };
        self.answer_command(bench.asker, answer);
        self.scan_for_leftovers();
    }

    /// The bench's own is none of the reaper's while it runs.
    pub fn bench_runs(&self) -> bool {
        self.bench.is_some()
    }
}
