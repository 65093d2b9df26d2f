//! Values of the configuration that are written with a unit: byte sizes and durations.
//!
//! Not here: what a size or a duration may be for a certain key; that is `check`'s. Invariant: what
//! is written out is read back as the same value.

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// A number of bytes: `"512MiB"`, `"1GB"`, or a bare number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Size(pub(crate) u64);

/// A duration: `"30s"`, `"500ms"`, `"1h 30m"`. A bare number has no unit and is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Span(pub(crate) Duration);

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl fmt::Display for Size {
    /// In the largest binary unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, unit): &&(&str, u64)| self.0 >= *unit && self.0.is_multiple_of(*unit);
        let (name, unit) = UNITS.iter().find(fits).unwrap_or(&("B", 1));
        write!(f, "{}{name}", self.0 / unit)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// Reads a duration as [`Span`] does.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| {
        format!("{text:?} is not a duration; write for example \"30s\", \"500ms\" or \"2m\"")
    })
}

fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!("{text:?} is not a byte size; write for example \"512MiB\" or a number of bytes")
    };
    // bytesize saturates on overflow, which would turn a slip of the keyboard into a huge limit.
    match text.trim().parse::<bytesize::ByteSize>() {
        Ok(size) if size.as_u64() < u64::MAX => Ok(size.as_u64()),
        _ => Err(wrong()),
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a byte size such as \"512MiB\", or a number of bytes")
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size(bytes))
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
        let refused = |_| E::invalid_value(Unexpected::Signed(bytes), &self);
        u64::try_from(bytes).map(Size).map_err(refused)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
        parse_size(text).map(Size).map_err(E::custom)
    }
}

struct SpanVisitor;

impl Visitor<'_> for SpanVisitor {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration with its unit, such as \"30s\" or \"500ms\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        parse_span(text).map(Span).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpanVisitor)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::{Size, parse_size, parse_span};
    use std::time::Duration;

    #[test]
    fn sizes_are_read_with_binary_and_decimal_units() {
        let check = |text: &str, bytes: u64| assert_eq!(parse_size(text), Ok(bytes), "{text}");
        check("0", 0);
        check("4096", 4096);
        check("512MiB", 512 << 20);
        check("1 GiB", 1 << 30);
        check("1.5KiB", 1536);
        check("1GB", 1_000_000_000);
        check("250GiB", 250 << 30);
    }

    #[test]
    fn what_is_not_a_size_is_refused_by_its_name() {
        for text in ["", "GiB", "1Gig", "-1", "1 2", "99999999999999999999TiB"] {
            let error = parse_size(text).unwrap_err();
            assert!(error.contains("is not a byte size"), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_are_written_so_that_they_are_read_back() {
        for (bytes, text) in [(0, "0B"), (1, "1B"), (1536, "1536B"), (1 << 20, "1MiB")] {
            assert_eq!(Size(bytes).to_string(), text);
            assert_eq!(parse_size(text), Ok(bytes));
        }
        assert_eq!(Size(250 << 30).to_string(), "250GiB");
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_span("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_span("1h 30m"), Ok(Duration::from_secs(5400)));
        assert!(parse_span("30").is_err());
        assert!(parse_span("strict").unwrap_err().contains("is not a duration"));
    }
}
