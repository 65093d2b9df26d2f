//! The credential scope and the time of a signature.

use larder_model::Timestamp;
use std::fmt;
use time::{Date, Month};

/// `AKID/YYYYMMDD/REGION/SERVICE/aws4_request`, taken apart and not yet judged.
#[derive(Clone, Copy)]
pub(super) struct Credential<'a> {
    pub(super) access_key: &'a str,
    pub(super) date: &'a str,
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    pub(super) terminator: &'a str,
}

/// The first of a scope's fields that is not ours.
pub(super) enum ScopeFault<'a> {
    Region { found: &'a str, expected: &'a str },
    Service(&'a str),
    Terminator(&'a str),
    Date { found: &'a str, expected: &'a str },
}

impl<'a> Credential<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let mut fields = text.split('/');
        let credential = Self {
            access_key: fields.next()?,
            date: fields.next()?,
            region: fields.next()?,
            service: fields.next()?,
            terminator: fields.next()?,
        };
        let dated =
            credential.date.len() == 8 && credential.date.bytes().all(|b| b.is_ascii_digit());
        (fields.next().is_none() && dated && !credential.access_key.is_empty())
            .then_some(credential)
    }

    /// Holds the scope against the accepted regions and the request's own date.
    pub(super) fn check(
        &self,
        regions: &'a [String],
        amz_date: &'a str,
    ) -> Result<(), ScopeFault<'a>> {
        if !regions.iter().any(|region| region == self.region) {
            let expected = regions.first().map_or("us-east-1", String::as_str);
            return Err(ScopeFault::Region { found: self.region, expected });
        }
        if self.service != "s3" {
            return Err(ScopeFault::Service(self.service));
        }
        if self.terminator != "aws4_request" {
            return Err(ScopeFault::Terminator(self.terminator));
        }
        match amz_date.get(..8) {
            Some(day) if day == self.date => Ok(()),
            day => Err(ScopeFault::Date { found: self.date, expected: day.unwrap_or_default() }),
        }
    }
}

impl fmt::Display for ScopeFault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Region { found, expected } => {
                write!(f, "the region '{found}' is wrong; expecting '{expected}'")
            }
            Self::Service(found) => {
                write!(f, "incorrect service \"{found}\". This endpoint belongs to \"s3\".")
            }
            Self::Terminator(found) => {
                write!(f, "incorrect terminator \"{found}\". This endpoint uses \"aws4_request\".")
            }
            Self::Date { found, expected } => write!(
                f,
                "Invalid credential date \"{found}\". This date is not the same as X-Amz-Date: \"{expected}\"."
            ),
        }
    }
}

/// Reads `YYYYMMDDTHHMMSSZ` as seconds since 1970.
pub(super) fn parse_amz_date(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() != 16 || bytes[8] != b'T' || bytes[15] != b'Z' {
        return None;
    }
    let number = |from: usize, to: usize| {
        bytes[from..to]
            .iter()
            .try_fold(0_u16, |sum, b| b.is_ascii_digit().then(|| sum * 10 + u16::from(b - b'0')))
    };
    let small = |from: usize| number(from, from + 2).and_then(|n| u8::try_from(n).ok());
    let month = Month::try_from(small(4)?).ok()?;
    let date = Date::from_calendar_date(i32::from(number(0, 4)?), month, small(6)?).ok()?;
    let moment = date.with_hms(small(9)?, small(11)?, small(13)?).ok()?;
    Some(moment.assume_utc().unix_timestamp())
}

/// `2026-11-21T05:25:00Z`, for the details of an error.
pub(super) fn show_time(seconds: i64) -> String {
    match time::OffsetDateTime::from_unix_timestamp(seconds) {
        Ok(t) => format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
            t.year(),
            u8::from(t.month()),
            t.day(),
            t.hour(),
            t.minute(),
            t.second()
        ),
        Err(_) => String::new(),
    }
}

/// Whole seconds since 1970.
pub(super) fn seconds(now: Timestamp) -> i64 {
    i64::try_from(now.0 / 1000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Credential, parse_amz_date, show_time};

    #[test]
    fn a_date_is_read_strictly() {
        assert_eq!(parse_amz_date("19700101T000001Z"), Some(1));
        assert_eq!(parse_amz_date("20130524T000000Z"), Some(1_369_353_600));
        let bad = [
            "20130524T000000",
            "20130532T000000Z",
            "20130524 000000Z",
            "2013052aT000000Z",
            "é0130524T00000Z",
            "",
        ];
        for text in bad {
            assert_eq!(parse_amz_date(text), None, "{text}");
        }
        assert_eq!(show_time(1_369_353_600), "2013-05-24T00:00:00Z");
    }

    #[test]
    fn a_credential_has_five_fields() {
        assert!(Credential::parse("AK/20130524/us-east-1/s3/aws4_request").is_some());
        for text in [
            "AK/20130524/us-east-1/s3",
            "/20130524/r/s3/aws4_request",
            "AK/2013/r/s3/aws4_request",
            "A/B/20130524/r/s3/aws4_request",
            "",
        ] {
            assert!(Credential::parse(text).is_none(), "{text}");
        }
    }
}
