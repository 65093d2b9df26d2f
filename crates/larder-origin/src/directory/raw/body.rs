//! The body of a raw request, in one form whatever it came as.

use super::super::checksum::{Algorithm, Stated};
use super::super::put::Incoming;
use super::super::refused;
use super::answer::{malformed_xml, not_implemented};
use super::ask::Ask;
use super::xml::{DOCUMENT_BYTES, Element};
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use larder_model::{BodyBroken, OriginError, RawBody, Trailer};
use std::io;

/// The largest body of one request (S3 User Guide, "Uploading objects").
pub(super) const BODY_BYTES: u64 = 5 * 1024 * 1024 * 1024;

/// A body that has not been read.
pub(super) struct Body {
    len: u64,
    trailer: Option<Trailer>,
    bytes: BoxStream<'static, io::Result<Bytes>>,
}

impl Body {
    pub(super) fn of(body: RawBody) -> Self {
        match body {
            RawBody::Empty => Self { len: 0, trailer: None, bytes: stream::empty().boxed() },
            RawBody::Whole(bytes) => Self {
                len: bytes.len() as u64,
                trailer: None,
                bytes: stream::iter([Ok(bytes)]).boxed(),
            },
            RawBody::Stream { len, trailer, bytes, .. } => {
                let broken = |piece: Result<Bytes, BodyBroken>| piece.map_err(io::Error::other);
                Self { len, trailer, bytes: bytes.map(broken).boxed() }
            }
        }
    }

    /// With all that the request says of it.
    pub(super) fn incoming(self, ask: &Ask) -> Result<Incoming<'static>, OriginError> {
        let md5 = ask.content_md5()?;
        let header = ask.header_checksum()?.map(Stated::Header);
        let Self { len, trailer, bytes } = self;
        if len > BODY_BYTES {
            let message = "Your proposed upload exceeds the maximum allowed size";
            return Err(refused(400, "EntityTooLarge", message));
        }
        let trailer = trailer.map(|Trailer { name, value }| {
            let algorithm = Algorithm::of_header(name.as_str());
            let algorithm = algorithm.ok_or_else(|| not_implemented(name.as_str()))?;
            Ok(Stated::Trailer(algorithm, value))
        });
        let trailer = trailer.transpose()?;
        Ok(Incoming { bytes, length: Some(len), md5, checksum: header.or(trailer) })
    }

    /// As a document; `None` for an empty one.
    pub(super) async fn document(mut self) -> Result<Option<Bytes>, OriginError> {
        let too_big = || refused(400, "MaxMessageLengthExceeded", "Your request was too big.");
        if self.len > DOCUMENT_BYTES {
            return Err(too_big());
        }
        let mut document = Vec::new();
        while let Some(piece) = self.bytes.next().await {
            document.extend_from_slice(&piece.map_err(|_| OriginError::BodyBroken)?);
            if document.len() as u64 > DOCUMENT_BYTES {
                return Err(too_big());
            }
        }
        Ok((!document.is_empty()).then(|| document.into()))
    }

    /// As a document whose root must have this name.
    pub(super) async fn xml(self, root: &str) -> Result<Element, OriginError> {
        let document = self.document().await?.ok_or_else(malformed_xml)?;
        Element::parse(&document, root)
    }
}
