//! Asking other OSDs for objects, and answering them.

use super::{Asker, Wanted};
use crate::osd::Osd;
use crate::peers::{ANSWER_TIMEOUT, Copied, FetchRequest};
use bytes::Bytes;
use denc::{Reader, Writer};
use messages::osd::peer::PeerMsg;
use pg::{Input, ObjectCopy};
use types::{Errno, HObject, OsdId, PgId, SPgId};

impl Osd {
    /// Another OSD of this process wants an object that is (or should be) here.
    pub fn on_fetch(&mut self, request: FetchRequest) {
        self.export(Asker::Local(request.answer), request.object);
    }

    pub fn export(&mut self, asker: Asker, object: HObject) {
        let map = &self.placement.state.osdmap;
        let pg = map
            .pool(object.pool)
            .map(|p| PgId::new(object.pool, p.raw_to_pg(object.hash)));
        let token = self.fetches.number();
        self.fetches.exports.insert(token, asker);
        match pg.and_then(|pg| self.leading(pg)) {
            Some(pg) => self.drive(pg, Input::Export { token, object }),
            None => self.exported(token, Err(Errno::EAGAIN)),
        }
    }

    pub fn exported(&mut self, token: u64, result: Copied) {
        match self.fetches.exports.remove(&token) {
            None => {}
            Some(Asker::Local(answer)) => drop(answer.send(result)),
            Some(Asker::Peer { conn, id }) => {
                let (result, copy) = match result {
                    Ok(copy) => (0, encode(&copy)),
                    Err(e) => (e.code(), Bytes::new()),
                };
                self.answer(conn, &PeerMsg::Fetched { id, result, copy });
            }
        }
    }

    pub fn on_fetched(&mut self, pg: SPgId, id: u64, result: Copied) {
        self.drive(pg, Input::Fetched { id, result });
    }

    /// Who leads the PG of an object.
    fn home_of(&self, object: &HObject) -> Option<OsdId> {
        let state = &self.placement.state;
        let pool = state.osdmap.pool(object.pool)?;
        let source = PgId::new(object.pool, pool.raw_to_pg(object.hash));
        Some(state.pgs.get(source)?.primary)
    }

    /// A PG of ours wants an object of another one.
    pub fn fetch(&mut self, pg: SPgId, id: u64, object: HObject) {
        self.meters.osd.copyfrom.inc();
        let home = self.home_of(&object);
        match home {
            Some(from) if from != self.id && !self.peers.has(from) => {
                let number = self.fetches.number();
                let until = self.clock.monotonic() + ANSWER_TIMEOUT;
                self.fetches.wanted.insert(
                    number,
                    Wanted {
                        from,
                        pg,
                        id,
                        object,
                        until,
                        sent: false,
                    },
                );
                self.want_peers();
                self.send_fetches(from);
            }
            _ => self.fetch_local(home, pg, id, object),
        }
    }

    fn fetch_local(&self, home: Option<OsdId>, pg: SPgId, id: u64, object: HObject) {
        let (peers, fetched) = (self.peers.clone(), self.fetched.clone());
        io::task::spawn_local(async move {
            let result = match home {
                Some(osd) => peers.fetch(osd, object).await,
                None => Err(Errno::EAGAIN),
            };
            let _ = fetched.send((pg, id, result));
        });
    }

    /// Asks `osd` for what was not asked for on the present connection.
    pub fn send_fetches(&mut self, osd: OsdId) {
        for (number, w) in self
            .fetches
            .wanted
            .iter_mut()
            .filter(|(_, w)| w.from == osd && !w.sent)
        {
            let object = w.object.clone();
            w.sent = self.links.send(osd, &PeerMsg::Fetch { id: *number, object });
        }
    }

    pub fn fetches_lost(&mut self, osd: OsdId) {
        for w in self.fetches.wanted.values_mut().filter(|w| w.from == osd) {
            w.sent = false;
        }
    }

    pub fn on_peer_fetched(&mut self, number: u64, result: i32, copy: &Bytes) {
        let Some(w) = self.fetches.wanted.remove(&number) else {
            return;
        };
        let result = match result {
            0 => decode(copy).map(Box::new).map_err(|e| {
                tracing::warn!("osd.{}: a malformed object: {e}", w.from);
                Errno::EIO
            }),
            code => Err(Errno(code.saturating_neg())),
        };
        self.on_fetched(w.pg, w.id, result);
    }

    /// Gives up what nobody answers, or what another OSD has to be asked for by now: the PG asks again.
    pub fn expire_fetches(&mut self) {
        let now = self.clock.monotonic();
        let late = |w: &Wanted| w.until <= now || self.home_of(&w.object) != Some(w.from);
        let late: Vec<u64> = self
            .fetches
            .wanted
            .iter()
            .filter(|(_, w)| late(w))
            .map(|(n, _)| *n)
            .collect();
        for number in late {
            if let Some(w) = self.fetches.wanted.remove(&number) {
                self.on_fetched(w.pg, w.id, Err(Errno::EAGAIN));
            }
        }
    }
}

fn encode(copy: &ObjectCopy) -> Bytes {
    let mut w = Writer::with_capacity(copy.data.len() + 256);
    w.envelope(1, 1, |w| {
        w.u64(copy.user_version);
        w.put(&copy.mtime);
        w.put(&copy.attrs);
        w.blob(&copy.omap_header);
        w.put(&copy.omap);
        w.blob(&copy.data);
    });
    w.finish()
}

fn decode(raw: &Bytes) -> denc::Result<ObjectCopy> {
    Reader::new(raw.clone()).envelope(1, |_, r| {
        Ok(ObjectCopy {
            user_version: r.u64()?,
            mtime: r.get()?,
            attrs: r.get()?,
            omap_header: r.blob()?,
            omap: r.get()?,
            data: r.blob()?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_survives_the_wire() {
        let b = |s: &'static str| Bytes::from_static(s.as_bytes());
        let copy = ObjectCopy {
            user_version: 7,
            mtime: types::Utime { sec: 5, nsec: 6 },
            data: b("data"),
            attrs: vec![(b("a"), b("1"))],
            omap_header: b("header"),
            omap: vec![(b("k"), b("v")), (b("l"), b(""))],
        };
        let raw = encode(&copy);
        assert_eq!(decode(&raw), Ok(copy));
        assert!(decode(&raw.slice(..raw.len() - 1)).is_err());
    }
}
