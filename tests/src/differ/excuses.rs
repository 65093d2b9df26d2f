//! What may differ between an origin's answer and the proxy's, and why. Everything else is a defect.
//!
//! There are two lists: single headers and elements, and whole answers where the origin of the test
//! leaves S3's rules and the proxy does not. A line of the second covers exactly one pair of
//! statuses, so that a third answer is a defect again.

use super::Side;
use super::compare::{Difference, Shown};
use crate::wire::{Coding, Wire};
use http::Method;
use time::OffsetDateTime;
use time::format_description::well_known::{Rfc2822, Rfc3339};

/// A difference in one place.
struct Excuse {
    covers: fn(&Seen<'_>) -> bool,
    reason: &'static str,
}

/// A difference of whole answers.
struct Verdict {
    /// The status at the origin and the one through the proxy.
    statuses: (u16, u16),
    covers: fn(&Seen<'_>) -> bool,
    reason: &'static str,
}

/// What a line looks at.
pub(super) struct Seen<'a> {
    pub(super) origin: Side,
    pub(super) writes: bool,
    pub(super) wire: &'a Wire,
    pub(super) direct: &'a Shown,
    pub(super) through: &'a Shown,
    pub(super) difference: &'a Difference,
}

impl Seen<'_> {
    /// Whether it is about one of these headers.
    fn header(&self, names: &[&str]) -> bool {
        matches!(self.difference, Difference::Header(name, ..) if names.contains(&name.as_str()))
    }

    /// Whether the origin sent a header and the proxy did not.
    fn lacks(&self, names: &[&str]) -> bool {
        self.header(names) && matches!(self.difference, Difference::Header(_, Some(_), None))
    }

    /// Whether the proxy sent a header and the origin did not.
    fn adds(&self, names: &[&str]) -> bool {
        self.header(names) && matches!(self.difference, Difference::Header(_, None, Some(_)))
    }

    /// Whether it is about an element whose path ends so.
    fn element(&self, ends: &[&str]) -> bool {
        let ends = |path: &String| ends.iter().any(|end| path.ends_with(end));
        matches!(self.difference, Difference::Element(path, _) if ends(path))
    }

    fn told(&self) -> String {
        self.difference.to_string()
    }

    fn documents(&self) -> bool {
        self.direct.body.starts_with(b"<") && self.through.body.starts_with(b"<")
    }

    fn same_code(&self) -> bool {
        self.direct.code().is_some() && self.direct.code() == self.through.code()
    }

    fn bodiless(&self) -> bool {
        self.wire.method == Method::HEAD || self.direct.status == 304
    }

    /// Whether the request has this header.
    fn sends(&self, name: &str, value: &str) -> bool {
        self.wire.headers.iter().any(|(key, have)| key == name && have == value)
    }

    fn sends_any(&self, name: &str) -> bool {
        self.wire.headers.iter().any(|(key, _)| key == name)
    }

    /// Whether the request has this parameter.
    fn asks(&self, name: &str, value: &str) -> bool {
        self.wire.query.iter().any(|(key, have)| key == name && have.as_deref() == Some(value))
    }

    fn asks_any(&self, name: &str) -> bool {
        self.wire.query.iter().any(|(key, _)| key == name)
    }

    fn lists(&self) -> bool {
        self.wire.key.is_none() && self.wire.method == Method::GET
    }

    /// Whether both sides tell a time, and these lie within seconds of each other.
    fn times(&self) -> bool {
        let times = match self.difference {
            Difference::Header(_, Some(direct), Some(through)) => (time(direct), time(through)),
            Difference::Element(_, what) => match what.split_once(" is ") {
                Some((direct, through)) => {
                    (time(direct.trim_matches('"')), time(through.trim_matches('"')))
                }
                None => return false,
            },
            _ => return false,
        };
        matches!(times, (Some(direct), Some(through)) if (direct - through).abs() < time::Duration::seconds(10))
    }
}

fn time(text: &str) -> Option<OffsetDateTime> {
    let date = || OffsetDateTime::parse(&text.replace("GMT", "+0000"), &Rfc2822);
    OffsetDateTime::parse(text, &Rfc3339).or_else(|_| date()).ok()
}

/// Headers of one exchange between two machines.
const EXCHANGE: [&str; 6] =
    ["connection", "date", "server", "x-amz-id-2", "x-amz-request-id", "x-amzn-requestid"];

const EXCUSES: [Excuse; 18] = [
    Excuse {
        covers: |seen| seen.lists() && seen.element(&["/ContinuationToken"]),
        reason: "S3 repeats the token that it was asked with: moto forgets it, and versitygw takes \
                 start-after for one",
    },
    Excuse {
        covers: |seen| seen.adds(&["x-larder-cache"]),
        reason: "the proxy tells where the bytes came from",
    },
    Excuse {
        covers: |seen| seen.header(&EXCHANGE) || seen.element(&["/RequestId", "/HostId"]),
        reason: "names and time of one exchange, and the server that answered: each has its own",
    },
    Excuse {
        covers: |seen| {
            let times = seen.header(&["last-modified"]) || seen.element(&["/LastModified"]);
            seen.writes && times && seen.times()
        },
        reason: "the twins were written one after the other",
    },
    Excuse {
        covers: |seen| seen.lacks(&["access-control-allow-origin"]) && !seen.sends_any("origin"),
        reason: "moto allows every browser without being asked by one; S3 answers a request that \
                 has an Origin, and no such answer belongs into a cache",
    },
    Excuse {
        covers: |seen| seen.header(&["content-length"]) && seen.documents(),
        reason: "documents are compared by their elements: two writers of XML may put white space \
                 and empty elements otherwise",
    },
    Excuse {
        covers: |seen| {
            let told = seen.told();
            let added = told.ends_with(": 0 times is 1 times: [] [\"\"]");
            let left = told.ends_with(": 1 times is 0 times: [\"\"] []");
            (added && seen.element(&["/Marker", "/Prefix"]))
                || (left && seen.element(&["/EncodingType"]))
        },
        reason: "an empty element and none say the same: S3 writes Marker and Prefix always and \
                 EncodingType only where it was asked for",
    },
    Excuse {
        covers: |seen| {
            seen.bodiless()
                && seen.lacks(&["content-length", "content-type"])
                && (seen.direct.failed() || seen.wire.key.is_none())
        },
        reason: "an answer that has no body needs neither its length nor its type",
    },
    Excuse {
        covers: |seen| {
            let date = seen.element(&["/LastModified"]) && seen.times();
            date && seen.told().contains(".000Z\"")
        },
        reason: "the same time, with and without the thousandths of a second that S3 writes",
    },
    Excuse {
        covers: |seen| {
            let of_pages = ["/Message", "/Key", "/BucketName", "/ResourceType", "/ArgumentValue"];
            let more = ["/ExpectedDigest", "/ActualObjectSize", "/ArgumentName"];
            seen.same_code() && (seen.element(&of_pages) || seen.element(&more))
        },
        reason: "what the proxy finds out by itself it tells in S3's words and with S3's details; \
                 the code is the same",
    },
    Excuse {
        covers: |seen| seen.direct.status == 416 && seen.adds(&["content-range"]),
        reason: "RFC 9110 §15.5.17: a 416 tells the object's length",
    },
    Excuse {
        covers: |seen| {
            seen.direct.status == 304
                && (seen.adds(&["etag", "last-modified"]) || seen.lacks(&["accept-ranges"]))
        },
        reason: "RFC 9110 §15.4.5: a 304 tells the validators, and nothing of the bytes",
    },
    Excuse {
        covers: |seen| {
            let of_object = ["accept-ranges", "etag", "last-modified"];
            seen.direct.status == 412 && seen.bodiless() && seen.lacks(&of_object)
        },
        reason: "moto describes the object in a 412 to HEAD, and not in one to GET; S3 in neither",
    },
    Excuse {
        covers: |seen| seen.header(&["x-amz-content-sha256"]) || seen.lacks(&["content-md5"]),
        reason: "moto keeps and repeats headers of the request that S3 does not",
    },
    Excuse {
        covers: |seen| {
            let told = seen.told();
            seen.origin == Side::Versity
                && seen.header(&["content-encoding"])
                && told.contains("aws-chunked")
                && !told.ends_with("is Some(\"aws-chunked\")")
        },
        reason: "versitygw keeps the framing of an upload as the object's encoding; S3 does not",
    },
    Excuse {
        covers: |seen| seen.lists() && seen.lacks(&["x-amz-bucket-region"]),
        reason: "a page of a listing is made by the proxy, since grants may hide a part of a \
                 bucket; HeadBucket tells the region",
    },
    Excuse {
        covers: |seen| {
            let encoded = seen.asks("encoding-type", "url")
                && seen.element(&["/Key", "/Prefix", "/EncodingType"]);
            let capped = seen.asks("max-keys", "5000") && seen.element(&["/MaxKeys"]);
            let next = seen.element(&["/NextMarker"]) && !seen.asks_any("delimiter");
            let marker = seen.element(&["/Marker"]) && seen.told().contains(": 0 times is 1 times");
            seen.lists() && (encoded || capped || next || marker)
        },
        reason: "ListObjects: url encodes every name, MaxKeys is 1000 at most, NextMarker comes \
                 with a delimiter only, Marker is repeated; the origin leaves these rules",
    },
    Excuse {
        covers: |seen| {
            let disposition = seen.header(&["content-disposition"]);
            let override_on_head = seen.header(&["content-type"])
                && seen.wire.method == Method::HEAD
                && seen.asks_any("response-content-type");
            seen.origin == Side::Moto && (disposition || override_on_head)
        },
        reason: "moto sends Latin-1 where S3 sends what it was asked for, and forgets overrides \
                 on HEAD",
    },
];

const VERDICTS: [Verdict; 20] = [
    Verdict {
        statuses: (206, 200),
        covers: |seen| seen.sends_any("if-range"),
        reason: "RFC 9110 §13.1.5: with an If-Range that does not hold, the range is void",
    },
    Verdict {
        statuses: (206, 200),
        covers: |seen| seen.origin == Side::Moto && seen.sends("range", "lines=0-1"),
        reason: "RFC 9110 §14.2: a unit that is not known is ignored",
    },
    Verdict {
        statuses: (200, 416),
        covers: |seen| seen.sends("range", "bytes=-1") && seen.wire.key.as_deref() == Some("empty"),
        reason: "S3: no range of an empty object can be satisfied",
    },
    Verdict {
        statuses: (412, 200),
        covers: |seen| {
            seen.sends("if-match", "*")
                || seen
                    .wire
                    .headers
                    .iter()
                    .any(|(name, value)| name == "if-match" && value.starts_with("\"x\", "))
        },
        reason: "RFC 9110 §13.1.1: a star matches what is there, and a list if one of it does",
    },
    Verdict {
        statuses: (412, 200),
        covers: |seen| seen.sends_any("if-match") && seen.sends_any("if-unmodified-since"),
        reason: "S3: If-Match that holds wins over If-Unmodified-Since that does not",
    },
    Verdict {
        statuses: (200, 304),
        covers: |seen| seen.sends_any("if-none-match"),
        reason: "RFC 9110 §13.1.2: a star, a weak tag, and one of a list match",
    },
    Verdict {
        statuses: (304, 200),
        covers: |seen| seen.sends_any("if-none-match") && seen.sends_any("if-modified-since"),
        reason: "RFC 9110 §13.1.3: with If-None-Match, If-Modified-Since is ignored",
    },
    Verdict {
        statuses: (200, 304),
        covers: |seen| seen.sends_any("if-modified-since") && seen.origin == Side::Versity,
        reason: "versitygw ignores a date in the future, as RFC 2616 did; RFC 9110 compares it",
    },
    Verdict {
        statuses: (500, 200),
        covers: |seen| seen.sends("if-modified-since", "yesterday"),
        reason: "moto fails on a malformed date; RFC 9110 §13.1.3 ignores it",
    },
    Verdict {
        statuses: (200, 400),
        covers: |seen| seen.asks("partNumber", "0"),
        reason: "S3: a part number is 1 to 10,000",
    },
    Verdict {
        statuses: (500, 400),
        covers: |seen| {
            seen.asks("partNumber", "x") || seen.asks("max-keys", "x") || seen.asks_any("delete")
        },
        reason: "moto fails where S3 answers InvalidArgument or MalformedXML",
    },
    Verdict {
        statuses: (200, 400),
        covers: |seen| seen.asks("max-keys", "-1") || seen.asks("encoding-type", "base64"),
        reason: "S3: InvalidArgument",
    },
    Verdict {
        statuses: (500, 503),
        covers: |seen| seen.origin == Side::Moto && seen.asks_any("continuation-token"),
        reason: "moto fails on a token that it did not make; the proxy asks again and then says \
                 that the origin cannot be reached",
    },
    Verdict {
        statuses: (200, 400),
        covers: |seen| {
            seen.wire.method == Method::PUT
                && (seen.sends_any("content-md5") || seen.sends_any("x-amz-checksum-crc32"))
        },
        reason: "moto does not look at digests; S3 answers BadDigest or InvalidDigest",
    },
    Verdict {
        statuses: (500, 405),
        covers: |seen| seen.origin == Side::Moto && seen.wire.method == Method::POST,
        reason: "moto fails where S3 answers MethodNotAllowed",
    },
    Verdict {
        statuses: (200, 400),
        covers: |seen| seen.asks_any("delete") && seen.wire.method == Method::POST,
        reason: "S3: DeleteObjects takes 1 to 1,000 keys, else MalformedXML",
    },
    Verdict {
        statuses: (400, 400),
        covers: |seen| {
            seen.asks_any("delete")
                && seen.through.code().as_deref() == Some("MalformedXML")
                && seen.origin == Side::Versity
        },
        reason: "versitygw calls broken XML an InvalidRequest; S3 MalformedXML",
    },
    Verdict {
        statuses: (400, 200),
        covers: |seen| {
            let trailer = matches!(seen.wire.coding, Coding::UnsignedTrailer(_));
            seen.origin == Side::Versity && seen.asks_any("delete") && trailer
        },
        reason: "versitygw takes no trailers with DeleteObjects; S3 does, and the proxy decodes \
                 them",
    },
    Verdict {
        statuses: (200, 404),
        covers: |seen| {
            seen.origin == Side::Versity
                && seen.wire.method == Method::HEAD
                && seen.wire.key.as_deref() == Some("after a trailer")
        },
        reason: "the consequence of the line above: it was deleted through the proxy alone",
    },
    Verdict {
        statuses: (500, 400),
        covers: |seen| seen.origin == Side::Moto && seen.sends("x-amz-copy-source", "nonsense"),
        reason: "moto fails where S3 answers InvalidArgument",
    },
];

/// The reason why a difference is right, if it is.
pub(super) fn find(seen: &Seen<'_>) -> Option<&'static str> {
    let statuses = (seen.direct.status, seen.through.status);
    let verdict = VERDICTS.iter().find(|it| it.statuses == statuses && (it.covers)(seen));
    let excuse = || EXCUSES.iter().find(|excuse| (excuse.covers)(seen)).map(|it| it.reason);
    verdict.map(|verdict| verdict.reason).or_else(excuse)
}
