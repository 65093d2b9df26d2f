//! How the origin double does what is passed on to it: each request names a plan that says what it
//! changes, when, and what its caller hears of it.

use super::oracle;
use super::world::{World, etag};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use larder_model::{OriginError, RawAnswer, RawBody, RawRequest};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The header that names the plan.
pub(crate) const PLAN: &str = "x-plan";

/// What the caller is told, and whether it is true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// 200 when it is done.
    Done,
    /// 200 at once, and its body ends when it is done.
    DoneInBody,
    /// 200 at once, and its body tells that it failed.
    FailedInBody,
    /// 412; an origin that was asked twice may have done it.
    Refused { applied: bool },
    /// 500.
    Failed { applied: bool },
    /// No answer.
    Silent { applied: bool },
}

/// One change, by key: the new version and its size, or that the object is gone.
pub(crate) type Change = (String, Option<(u64, u64)>);

/// What becomes of one request.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What it changes; empty once it has.
    pub(crate) changes: Mutex<Vec<Change>>,
    pub(crate) end: End,
    /// How long the change takes, and then the answer.
    pub(crate) before: u32,
    pub(crate) after: u32,
    /// The origin goes on when the caller goes away.
    pub(crate) detached: bool,
    /// Changes that did not come, come so long after the answer that did not come.
    pub(crate) late: Option<u32>,
    /// What has been changed, by key and place in its history.
    pub(crate) applied: Mutex<Vec<(String, usize)>>,
}

impl Plan {
    pub(crate) fn new(changes: Vec<Change>, end: End) -> Self {
        Self {
            changes: Mutex::new(changes),
            end,
            before: 1,
            after: 1,
            detached: false,
            late: None,
            applied: Mutex::default(),
        }
    }

    pub(crate) fn applied(&self) -> Vec<(String, usize)> {
        self.applied.lock().unwrap().clone()
    }

    fn applies(&self) -> bool {
        match self.end {
            End::Done => true,
            End::Refused { applied } | End::Failed { applied } | End::Silent { applied } => applied,
            // In its body.
            End::DoneInBody | End::FailedInBody => false,
        }
    }

    /// The tag of what a PUT made.
    fn etag(&self) -> Option<String> {
        let changes = self.changes.lock().unwrap();
        let version = changes.first()?.1?.0;
        Some(etag(version).as_str().to_owned())
    }
}

pub(crate) async fn yields(count: u32) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

impl World {
    /// Registers a plan, and tells the value of its header.
    pub(crate) fn plan(&self, plan: Plan) -> (Arc<Plan>, String) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (plan, number) = (Arc::new(plan), NEXT.fetch_add(1, Ordering::SeqCst));
        self.plans.lock().unwrap().insert(number, plan.clone());
        (plan, number.to_string())
    }

    fn apply(&self, plan: &Plan) {
        for (key, object) in std::mem::take(&mut *plan.changes.lock().unwrap()) {
            let place = self.put(&key, object);
            plan.applied.lock().unwrap().push((key, place));
        }
    }

    /// Origin::raw.
    pub(crate) async fn carry_out(&self, request: RawRequest) -> Result<RawAnswer, OriginError> {
        let number = request.headers[PLAN].to_str().unwrap().parse().unwrap();
        let plan = self.plans.lock().unwrap().remove(&number).expect("a plan used once");
        if self.down.load(Ordering::SeqCst) {
            return Err(self.unreachable());
        }
        receive(&plan, request.body).await?;
        let tag = plan.etag();
        let world = self.me.upgrade().unwrap();
        let act = {
            let plan = plan.clone();
            async move {
                yields(plan.before).await;
                if plan.applies() {
                    world.apply(&plan);
                }
                yields(plan.after).await;
            }
        };
        match plan.detached {
            true => tokio::spawn(act).await.unwrap(),
            false => act.await,
        }
        if let Some(late) = plan.late {
            let (world, plan) = (self.me.upgrade().unwrap(), plan.clone());
            tokio::spawn(async move {
                yields(late).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
                world.apply(&plan);
            });
        }
        match plan.end {
            End::Done => Ok(answer(200, tag, &[])),
            End::DoneInBody | End::FailedInBody => Ok(self.slowly(&plan)),
            End::Refused { .. } => Ok(answer(412, None, &["<Error/>"])),
            End::Failed { .. } => Ok(answer(500, None, &["<Error/>"])),
            End::Silent { .. } => {
                let reason = "no answer in time".to_owned();
                Err(OriginError::Unreachable { origin: self.name.clone(), reason })
            }
        }
    }

    /// 200, white space, and then the truth.
    fn slowly(&self, plan: &Arc<Plan>) -> RawAnswer {
        let mut answer = answer(200, None, &[]);
        answer.headers.remove("content-length");
        let done = plan.end == End::DoneInBody;
        let texts =
            if done { ["<Result>", "</Result>", "\n"] } else { ["<Error>", "</Error>", "\n"] };
        let (world, plan) = (self.me.upgrade().unwrap(), plan.clone());
        // A change half-way through: some was changed when the text has begun.
        answer.body = stream::iter([" ", " "].into_iter().chain(texts).enumerate())
            .then(move |(at, text)| {
                let (world, plan) = (world.clone(), plan.clone());
                async move {
                    yields(plan.after).await;
                    // Before the text's end, so the change may come while it is being told.
                    if at == 3 && done {
                        world.apply(&plan);
                    }
                    Ok(Bytes::from_static(text.as_bytes()))
                }
            })
            .boxed();
        answer
    }
}

fn answer(status: u16, tag: Option<String>, body: &[&'static str]) -> RawAnswer {
    let mut headers = http::HeaderMap::new();
    let len: usize = body.iter().map(|text| text.len()).sum();
    headers.insert("content-length", len.into());
    if let Some(tag) = tag {
        headers.insert("etag", tag.parse().unwrap());
    }
    let frames: Vec<_> = body.iter().map(|text| Ok(Bytes::from_static(text.as_bytes()))).collect();
    RawAnswer { status, headers, body: stream::iter(frames).boxed() }
}

/// Takes a body in, and checks that it is what the plan's version should be made of.
async fn receive(plan: &Plan, body: RawBody) -> Result<(), OriginError> {
    let (len, mut bytes) = match body {
        RawBody::Empty => return Ok(()),
        RawBody::Whole(bytes) => (bytes.len() as u64, stream::iter([Ok(bytes)]).boxed()),
        RawBody::Stream { len, bytes, .. } => (len, bytes),
    };
    let mut got = Vec::new();
    while let Some(frame) = bytes.next().await {
        got.extend_from_slice(&frame.map_err(|_| OriginError::BodyBroken)?);
        tokio::task::yield_now().await;
    }
    assert_eq!(got.len() as u64, len);
    if let Some((key, Some((version, size)))) = plan.changes.lock().unwrap().first() {
        assert!(got == oracle::bytes(key, *version, 0, *size), "a body changed on its way");
    }
    Ok(())
}
