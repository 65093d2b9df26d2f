//! Two answers side by side: everything that differs, one thing each.

use super::xml;
use crate::client::Reply;
use std::collections::BTreeMap;
use std::fmt;

/// An answer in a form that can be compared.
pub struct Shown {
    /// Its status.
    pub status: u16,
    /// Its headers; values of one name joined.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Shown {
    /// An answer with `blind` over all its texts.
    #[must_use]
    pub fn of(reply: &Reply, blind: impl Fn(&str) -> String) -> Self {
        let mut headers: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in &reply.headers {
            let value = blind(&String::from_utf8_lossy(value.as_bytes()));
            headers
                .entry(name.to_string())
                .and_modify(|have| *have = format!("{have}, {value}"))
                .or_insert(value);
        }
        let body = match std::str::from_utf8(&reply.body) {
            Ok(text) if text.starts_with(['<', '{']) => blind(text).into_bytes(),
            _ => reply.body.to_vec(),
        };
        Self { status: reply.status.as_u16(), headers, body }
    }

    /// Whether it is an error or a redirect.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.status >= 300
    }

    /// The code of an error in XML.
    #[must_use]
    pub fn code(&self) -> Option<String> {
        let root = xml::parse(std::str::from_utf8(&self.body).ok()?)?;
        root.children.into_iter().find(|child| child.name == "Code").map(|child| child.text)
    }
}

/// One thing in which two answers differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Difference {
    /// The status: direct, through.
    Status(u16, u16, String),
    /// A header: its name, its value direct and through.
    Header(String, Option<String>, Option<String>),
    /// An element of the body: its path, what differs.
    Element(String, String),
    /// The bytes of the body.
    Body(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(direct, through, text) => {
                write!(f, "status {direct} is {through}: {text}")
            }
            Self::Header(name, direct, through) => write!(f, "{name}: {direct:?} is {through:?}"),
            Self::Element(path, what) => write!(f, "{path}: {what}"),
            Self::Body(what) => f.write_str(what),
        }
    }
}

/// Everything in which two answers differ.
#[must_use]
pub fn difference(direct: &Shown, through: &Shown) -> Vec<Difference> {
    let mut found = Vec::new();
    if direct.status != through.status {
        let text = format!("{} / {}", short(&direct.body), short(&through.body));
        found.push(Difference::Status(direct.status, through.status, text));
    }
    let mut names: Vec<&String> = direct.headers.keys().chain(through.headers.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let (left, right) = (direct.headers.get(name), through.headers.get(name));
        if left != right {
            found.push(Difference::Header(name.clone(), left.cloned(), right.cloned()));
        }
    }
    found.extend(bodies(&direct.body, &through.body));
    found
}

fn bodies(direct: &[u8], through: &[u8]) -> Vec<Difference> {
    if direct == through {
        return Vec::new();
    }
    let document = |body: &[u8]| xml::parse(std::str::from_utf8(body).ok()?);
    if let (Some(left), Some(right)) = (document(direct), document(through)) {
        let mut found = Vec::new();
        xml::differences("", &left, &right, &mut found);
        return found.into_iter().map(|(path, what)| Difference::Element(path, what)).collect();
    }
    let told = format!("the body {} is {}", short(direct), short(through));
    vec![Difference::Body(told)]
}

fn short(body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).chars().take(300).collect();
    format!("{} bytes {text:?}", body.len())
}

#[cfg(test)]
mod tests {
    use super::{Difference, Shown, difference};
    use crate::client::Reply;
    use http::{HeaderMap, StatusCode};

    fn shown(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Shown {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        let reply = Reply { status, headers: map, body: body.to_owned().into() };
        Shown::of(&reply, |text| text.replace("twin-b", "twin-a"))
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let left = shown(200, &[("etag", "\"a\""), ("x-one", "twin-a")], "<A><B>twin-a</B></A>");
        assert_eq!(difference(&left, &left), []);
        let same = shown(200, &[("x-one", "twin-b"), ("etag", "\"a\"")], "<A>\n<B>twin-b</B></A>");
        assert_eq!(difference(&left, &same), []);
        let right = shown(404, &[("etag", "\"b\""), ("x-two", "1")], "<A><B>x</B></A>");
        let found = difference(&left, &right);
        assert!(matches!(found[0], Difference::Status(200, 404, _)), "{found:?}");
        let names: Vec<_> = found
            .iter()
            .filter_map(|one| match one {
                Difference::Header(name, ..) | Difference::Element(name, _) => Some(name.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(names, ["etag", "x-one", "x-two", "/A/B"]);
        let bytes = difference(&shown(200, &[], "abc"), &shown(200, &[], "abd"));
        assert!(matches!(bytes.as_slice(), [Difference::Body(_)]), "{bytes:?}");
    }

    #[test]
    fn a_header_that_comes_twice_is_told_from_one_that_comes_once() {
        let twice = shown(200, &[("vary", "a"), ("vary", "b")], "");
        let once = shown(200, &[("vary", "a")], "");
        assert_eq!(difference(&twice, &once).len(), 1);
    }
}
