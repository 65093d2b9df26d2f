//! Reads that no cache may answer: one part of a multipart object, and objects without a usable
//! version. They go to the origin each time and leave nothing behind.

use crate::engine::settle;
use crate::meters::Cause;
use crate::shelf::Shelf;
use crate::{Answer, Body, Head, ReadError, ReadRequest, Source};
use bytes::Bytes;
use futures_util::StreamExt;
use larder_model::{ByteRange, FetchRequest, Fetched, HeadRequest, ObjectMeta};
use std::sync::Arc;

/// The state of one part, as the origin tells it.
pub(crate) async fn head(shelf: &Arc<Shelf>, request: &ReadRequest) -> Result<Head, ReadError> {
    let meta = Arc::new(state(shelf, request).await?);
    let range = settle(request, &meta)?;
    Ok(Head { meta, range, source: Source::Origin })
}

async fn state(shelf: &Shelf, request: &ReadRequest) -> Result<ObjectMeta, ReadError> {
    let head = HeadRequest {
        name: request.name.clone(),
        part_number: request.part_number,
        checksums: request.checksums,
    };
    shelf.origin.head(head).await.map_err(|error| shelf.refusal(&request.name, error))
}

/// The bytes, as the origin tells them. `known` is the object's state where it was just asked for:
/// a range needs the size. `first` is the answer that told it, which will do if it brings just the
/// bytes that are wanted. The body is of one answer, so of one version.
pub(crate) async fn get(
    shelf: &Arc<Shelf>,
    request: &ReadRequest,
    known: Option<Arc<ObjectMeta>>,
    first: Option<Fetched>,
) -> Result<Answer, ReadError> {
    let wanted = match &known {
        Some(meta) => settle(request, meta)?,
        None => None,
    };
    shelf.missed(Cause::Bypass);
    let whole = |meta: &Arc<ObjectMeta>| ByteRange::new(0, meta.size);
    let all = known.as_ref().map(|meta| wanted.or(whole(meta)));
    let fetched = match first.filter(|first| all == Some(first.range)) {
        Some(first) => first,
        None => fetch(shelf, request, wanted).await?,
    };
    let meta = Arc::new(fetched.meta);
    // The state may be another one than the one that was asked for first; then so is the range.
    if settle(request, &meta)? != wanted && known.is_some() {
        return Err(ReadError::Changed(request.name.clone()));
    }
    let part = request.part_number.is_some();
    let range = if part { partial(fetched.range, meta.size) } else { wanted };
    if !part && fetched.range != wanted.or(ByteRange::new(0, meta.size)) {
        return Err(ReadError::Changed(request.name.clone()));
    }
    let (shelf, name) = (shelf.clone(), request.name.clone());
    let body = match fetched.range {
        None => Body::Full(Bytes::new()),
        Some(_) => Body::Stream(
            fetched
                .body
                .map(move |frame| match frame {
                    Ok(frame) => {
                        shelf.meters.origin_bytes.inc_by(frame.len() as u64);
                        shelf.meters.served(Source::Origin).inc_by(frame.len() as u64);
                        Ok(frame)
                    }
                    Err(error) => Err(shelf.refusal(&name, error)),
                })
                .boxed(),
        ),
    };
    Ok(Answer { meta, range, source: Source::Origin, body })
}

async fn fetch(
    shelf: &Shelf,
    request: &ReadRequest,
    range: Option<ByteRange>,
) -> Result<Fetched, ReadError> {
    let fetch = FetchRequest {
        name: request.name.clone(),
        range,
        if_match: None,
        part_number: request.part_number,
        checksums: request.checksums,
    };
    let fetched = shelf.origin.fetch(fetch).await;
    fetched.map_err(|error| shelf.refusal(&request.name, error))
}

/// A part that is the whole object is still answered with 206 by S3, but origins that ignore
/// `partNumber` answer 200 with the whole: replay what the body is.
fn partial(range: Option<ByteRange>, size: u64) -> Option<ByteRange> {
    range.filter(|range| range.len() < size)
}
