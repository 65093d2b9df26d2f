//! Ranges of bytes: what a client asks for, what an object has, and which blocks hold it.

use std::ops::Range;

/// A half-open, non-empty range of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// `start..end`, or `None` when that is empty.
    #[must_use]
    pub fn new(start: u64, end: u64) -> Option<Self> {
        (start < end).then_some(Self { start, end })
    }

    /// The first byte's offset.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The offset behind the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many bytes; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a byte range is never empty")]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// The value of a `Range` request header for these bytes.
    #[must_use]
    pub fn to_header(&self) -> String {
        format!("bytes={}-{}", self.start, self.end - 1)
    }

    /// The value of a `Content-Range` header for these bytes of an object of `size`.
    #[must_use]
    pub fn to_content_range(&self, size: u64) -> String {
        format!("bytes {}-{}/{size}", self.start, self.end - 1)
    }

    /// The part that lies below `size`.
    #[must_use]
    pub fn clip(&self, size: u64) -> Option<Self> {
        Self::new(self.start, self.end.min(size))
    }
}

/// A request's `Range` header, before the object's size is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeSpec {
    /// `bytes=a-`
    From(u64),
    /// `bytes=a-b`, both ends inside.
    FromTo(u64, u64),
    /// `bytes=-n`: the last n bytes.
    Suffix(u64),
}

/// No byte of the object lies in the range that was asked for: 416.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the requested range lies outside the object's {size} bytes")]
pub struct Unsatisfiable {
    /// The object's size.
    pub size: u64,
}

impl RangeSpec {
    /// Reads a `Range` header. `None` for anything that S3 ignores and answers with the whole
    /// object: another unit, several ranges, a reversed or malformed one (RFC 9110 §14.2).
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let (unit, spec) = header.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = spec.trim().split_once('-')?;
        let (first, last) = (first.trim(), last.trim());
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            // More digits than a u64 holds is a number beyond any object, not a malformed one.
            plain.then(|| digits.parse().unwrap_or(u64::MAX))
        };
        match (first.is_empty(), last.is_empty()) {
            (true, false) => Some(Self::Suffix(number(last)?)),
            (false, true) => Some(Self::From(number(first)?)),
            (false, false) => {
                let (a, b) = (number(first)?, number(last)?);
                (a <= b).then_some(Self::FromTo(a, b))
            }
            (true, true) => None,
        }
    }

    /// The bytes of an object of `size` that are meant.
    pub fn resolve(self, size: u64) -> Result<ByteRange, Unsatisfiable> {
        let range = match self {
            Self::From(a) => ByteRange::new(a, size),
            Self::FromTo(a, b) => ByteRange::new(a, b.saturating_add(1).min(size)),
            Self::Suffix(n) => ByteRange::new(size.saturating_sub(n), size),
        };
        range.ok_or(Unsatisfiable { size })
    }
}

/// How an object of a given size is cut into blocks of a given length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockLayout {
    size: u64,
    block_bytes: u32,
}

impl BlockLayout {
    /// Blocks of `block_bytes`, the last one shorter.
    ///
    /// # Panics
    ///
    /// When `block_bytes` is 0; the configuration refuses that.
    #[must_use]
    pub fn new(size: u64, block_bytes: u32) -> Self {
        assert!(block_bytes > 0, "a block has at least one byte");
        Self { size, block_bytes }
    }

    /// How many blocks the object has; 0 for an empty one.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.size.div_ceil(u64::from(self.block_bytes))
    }

    /// The bytes of block `index`.
    ///
    /// # Panics
    ///
    /// When the object has no such block.
    #[must_use]
    pub fn block(&self, index: u64) -> ByteRange {
        let start = index * u64::from(self.block_bytes);
        let end = (start + u64::from(self.block_bytes)).min(self.size);
        assert!(start < end, "block {index} lies behind the object's {} bytes", self.size);
        ByteRange { start, end }
    }

    /// The index of the block that holds the byte at `offset`.
    #[must_use]
    pub fn index(&self, offset: u64) -> u64 {
        offset / u64::from(self.block_bytes)
    }

    /// The blocks that hold `range`.
    #[must_use]
    pub fn blocks(&self, range: ByteRange) -> Range<u64> {
        self.index(range.start)..self.index(range.end - 1) + 1
    }

    /// The bytes of the blocks `run`, which must not be empty.
    #[must_use]
    pub fn bytes(&self, run: &Range<u64>) -> ByteRange {
        ByteRange { start: self.block(run.start).start, end: self.block(run.end - 1).end }
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockLayout, ByteRange, RangeSpec, Unsatisfiable};

    fn check(header: &str, size: u64, expected: Option<Result<(u64, u64), ()>>) {
        let got = RangeSpec::parse(header)
            .map(|spec| spec.resolve(size).map(|r| (r.start(), r.end())).map_err(|_| ()));
        assert_eq!(got, expected, "{header} of {size}");
    }

    #[test]
    fn ranges_resolve_as_s3_does() {
        check("bytes=0-0", 10, Some(Ok((0, 1))));
        check("bytes=2-", 10, Some(Ok((2, 10))));
        check("bytes=2-99", 10, Some(Ok((2, 10))));
        check("bytes=-3", 10, Some(Ok((7, 10))));
        check("bytes=-30", 10, Some(Ok((0, 10))));
        check("Bytes = 1-2", 10, Some(Ok((1, 3))));
        check("bytes=10-", 10, Some(Err(())));
        check("bytes=-0", 10, Some(Err(())));
        check("bytes=0-", 0, Some(Err(())));
        check("bytes=99999999999999999999999-", 10, Some(Err(())));
    }

    #[test]
    fn what_s3_ignores_is_no_range() {
        for header in
            ["bytes=5-2", "bytes=a-b", "bytes=1-2,4-5", "lines=1-2", "bytes=-", "", "bytes=+1-2"]
        {
            check(header, 10, None);
        }
    }

    #[test]
    fn the_end_of_the_number_line_does_not_overflow() {
        let spec = RangeSpec::FromTo(0, u64::MAX);
        assert_eq!(spec.resolve(5).map(|r| r.len()), Ok(5));
        assert_eq!(RangeSpec::From(u64::MAX).resolve(5), Err(Unsatisfiable { size: 5 }));
    }

    #[test]
    fn the_last_block_is_shorter() {
        let layout = BlockLayout::new(10, 4);
        assert_eq!(layout.count(), 3);
        assert_eq!(layout.block(2), ByteRange::new(8, 10).unwrap());
        assert_eq!(layout.blocks(ByteRange::new(3, 9).unwrap()), 0..3);
        assert_eq!(layout.bytes(&(1..3)), ByteRange::new(4, 10).unwrap());
        assert_eq!(BlockLayout::new(0, 4).count(), 0);
    }
}
