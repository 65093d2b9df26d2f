//! From the bytes of a request's body to the bytes of its payload, verified.
//!
//! A state machine without input or output of its own. Whatever comes out of [`Decoder::next`] is to
//! be held as unverified until [`Decoder::finish`] has said so.

use super::checks::{Checks, Mismatch, Promises};
use super::chunked::Chunked;
use crate::pass::Scanner;
use bytes::Bytes;

/// Why a body is not what it was said to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It is no aws-chunked.
    Framing(&'static str),
    /// The signature of a chunk or of the trailer is wrong or missing.
    Signature,
    /// The trailer is malformed, too long, missing, or not what was announced.
    Trailer,
    /// It ended before its end.
    Short,
    /// It is longer than was declared.
    Long,
    /// It is not what a digest of it says.
    Mismatch(Mismatch),
}

/// How the payload lies in the body.
pub(crate) enum Framing {
    /// The body is the payload.
    Plain,
    /// aws-chunked.
    Chunked(Box<Chunked>),
    /// The file of a form, from its beginning on.
    Form(Box<Scanner>),
}

/// The reader of one body.
pub(crate) struct Decoder {
    framing: Framing,
    checks: Checks,
    /// The payload that is still to come.
    left: u64,
}

impl Decoder {
    /// `len`: how long the payload is said to be.
    pub(crate) fn new(framing: Framing, promises: Promises, len: u64) -> Self {
        Self { framing, checks: Checks::new(promises), left: len }
    }

    /// The next payload in `input`, never empty; `None` once all of `input` is used up.
    pub(crate) fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, Broken> {
        let payload = match &mut self.framing {
            Framing::Plain if input.is_empty() => None,
            Framing::Plain => Some(input.split_to(input.len())),
            Framing::Chunked(chunked) => chunked.next(input)?,
            Framing::Form(scanner) => scanner.next(input),
        };
        if let Some(payload) = &payload {
            self.left = self.left.checked_sub(payload.len() as u64).ok_or(Broken::Long)?;
            self.checks.update(payload);
        }
        Ok(payload)
    }

    /// The body has ended: whether all of it was as declared. The value of its trailer, if it has one.
    pub(crate) fn finish(self) -> Result<Option<String>, Broken> {
        let trailer = match self.framing {
            Framing::Plain => None,
            Framing::Chunked(chunked) => chunked.finish()?,
            Framing::Form(scanner) if scanner.has_ended() => None,
            Framing::Form(_) => return Err(Broken::Short),
        };
        if self.left > 0 {
            return Err(Broken::Short);
        }
        self.checks.finish(trailer.as_deref()).map_err(Broken::Mismatch)?;
        Ok(trailer)
    }
}

#[cfg(test)]
mod tests;
