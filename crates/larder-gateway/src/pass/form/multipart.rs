//! multipart/form-data up to its file (RFC 7578), and the place where the file ends.

use bytes::Bytes;
use memchr::memmem;

/// The most bytes before the file (POST Object in the S3 API Reference).
pub(super) const MAX_HEAD_BYTES: usize = 20 * 1024;

/// The fields before the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Names in lower case, and values, in order.
    pub(super) fields: Vec<(String, String)>,
    /// What the file was called where it came from; empty if that was not told.
    pub(super) filename: String,
    /// Where the file begins.
    pub(super) at: usize,
}

/// Why a form cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// It is no multipart/form-data of this boundary.
    Syntax,
    /// It has no file.
    NoFile,
    /// It goes on for too long before the file.
    TooLarge,
}

/// The boundary that a content type names.
pub(super) fn boundary(content_type: &str) -> Option<String> {
    let (_, parameters) = content_type.split_once(';')?;
    let found = parameter(parameters, "boundary")?;
    (1..=70).contains(&found.len()).then_some(found)
}

/// Reads the fields from the beginning of a body; `None` while the file has not begun.
pub(super) fn parse_head(bytes: &[u8], boundary: &str) -> Result<Option<Head>, Malformed> {
    let found = parse(bytes, boundary)?;
    let at = found.as_ref().map_or(bytes.len(), |head| head.at);
    if at > MAX_HEAD_BYTES { Err(Malformed::TooLarge) } else { Ok(found) }
}

fn parse(bytes: &[u8], boundary: &str) -> Result<Option<Head>, Malformed> {
    let open = format!("--{boundary}");
    let delimiter = delimiter(boundary);
    let mut fields = Vec::new();
    let mut at = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
    let beginning = bytes.get(at..).unwrap_or_default();
    if !beginning.starts_with(open.as_bytes()) {
        let may_come = open.as_bytes().starts_with(beginning);
        return if may_come { Ok(None) } else { Err(Malformed::Syntax) };
    }
    at += open.len();
    loop {
        match bytes.get(at..at + 2) {
            Some(b"\r\n") => at += 2,
            Some(b"--") => return Err(Malformed::NoFile),
            Some(_) => return Err(Malformed::Syntax),
            None => return Ok(None),
        }
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(end) = memmem::find(rest, b"\r\n\r\n") else { return Ok(None) };
        let (name, filename) = parse_part(&rest[..end])?;
        at += end + 4;
        if name == "file" {
            return Ok(Some(Head { fields, filename: filename.unwrap_or_default(), at }));
        }
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(end) = memmem::find(rest, delimiter.as_bytes()) else { return Ok(None) };
        let value = std::str::from_utf8(&rest[..end]).map_err(|_| Malformed::Syntax)?;
        fields.push((name, value.to_owned()));
        at += end + delimiter.len();
    }
}

/// The name of a part, in lower case, and that of its file.
fn parse_part(headers: &[u8]) -> Result<(String, Option<String>), Malformed> {
    let headers = std::str::from_utf8(headers).map_err(|_| Malformed::Syntax)?;
    let disposition = headers.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    });
    let (kind, parameters) =
        disposition.and_then(|d| d.split_once(';')).ok_or(Malformed::Syntax)?;
    let name = parameter(parameters, "name").ok_or(Malformed::Syntax)?;
    if !kind.trim().eq_ignore_ascii_case("form-data") {
        return Err(Malformed::Syntax);
    }
    Ok((name.to_ascii_lowercase(), parameter(parameters, "filename")))
}

/// The value of a parameter, quoted or not.
fn parameter(mut rest: &str, wanted: &str) -> Option<String> {
    loop {
        let (name, behind) = rest.split_once('=')?;
        let (value, behind) = match behind.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let (value, behind) = behind.split_once(';').unwrap_or((behind, ""));
                (value.trim().to_owned(), behind)
            }
        };
        if name.trim_matches([' ', ';', '\t']).eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = behind;
    }
}

/// The text up to the closing quote, and what lies behind it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

fn delimiter(boundary: &str) -> String {
    format!("\r\n--{boundary}")
}

/// How many bytes follow a file that is the form's last part.
pub(super) fn tail_bytes(boundary: &str) -> u64 {
    delimiter(boundary).len() as u64 + 4
}

/// Where the file ends in all of what follows its beginning.
pub(super) fn end_of_file(bytes: &[u8], boundary: &str) -> Option<usize> {
    memmem::find(bytes, delimiter(boundary).as_bytes())
}

/// Hands out a file up to the boundary, whatever pieces it comes in. What may be the beginning of the
/// boundary is held back.
pub(crate) struct Scanner {
    delimiter: String,
    held: Vec<u8>,
    ended: bool,
}

impl Scanner {
    pub(super) fn new(boundary: &str) -> Self {
        Self { delimiter: delimiter(boundary), held: Vec::new(), ended: false }
    }

    /// Whether the boundary has come.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The next bytes of the file in `input`, never empty; `None` once all of `input` is used up.
    pub(crate) fn next(&mut self, input: &mut Bytes) -> Option<Bytes> {
        while !input.is_empty() && !self.ended {
            if self.held.is_empty() {
                let first = self.delimiter.as_bytes()[0];
                return match memmem::find(input, self.delimiter.as_bytes()) {
                    Some(end) => {
                        let file = input.split_to(end);
                        self.end(input);
                        (!file.is_empty()).then_some(file)
                    }
                    None => {
                        let tail = input.len().saturating_sub(self.delimiter.len() - 1);
                        let begins = |at: &usize| {
                            input[*at] == first
                                && self.delimiter.as_bytes().starts_with(&input[*at..])
                        };
                        let cut = (tail..input.len()).find(begins).unwrap_or(input.len());
                        let file = input.split_to(cut);
                        self.held.extend_from_slice(input);
                        input.clear();
                        (!file.is_empty()).then_some(file)
                    }
                };
            }
            // As many bytes as decide about what is held.
            let missing = (self.delimiter.len() - self.held.len()).min(input.len());
            self.held.extend_from_slice(&input.split_to(missing));
            if self.held == self.delimiter.as_bytes() {
                self.end(input);
                return None;
            }
            if self.delimiter.as_bytes().starts_with(&self.held) {
                continue;
            }
            // Its first byte was none of the boundary; the rest may be.
            let begins = |at: &usize| self.delimiter.as_bytes().starts_with(&self.held[*at..]);
            let cut = (1..self.held.len()).find(begins).unwrap_or(self.held.len());
            let rest = self.held.split_off(cut);
            return Some(Bytes::from(std::mem::replace(&mut self.held, rest)));
        }
        input.clear();
        None
    }

    fn end(&mut self, input: &mut Bytes) {
        self.ended = true;
        self.held.clear();
        input.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{Head, Malformed, Scanner, boundary, end_of_file, parse_head};
    use bytes::Bytes;
    use proptest::prelude::{prop, prop_assert_eq, proptest};

    fn part(name: &str, value: &str) -> String {
        format!("Content-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}")
    }

    #[test]
    fn the_fields_before_the_file_are_read() {
        let file = "content-disposition: form-data; filename=\"a \\\"b\\\".txt\"; name=File\r\nContent-Type: x\r\n\r\nBYTES";
        let form = format!(
            "--b\r\n{}\r\n--b\r\n{}\r\n--b\r\n{file}",
            part("Key", "a\r\nb"),
            part("acl", "")
        );
        let found = parse_head(form.as_bytes(), "b").unwrap().unwrap();
        let fields =
            vec![("key".to_owned(), "a\r\nb".to_owned()), ("acl".to_owned(), String::new())];
        assert_eq!(found, Head { fields, filename: "a \"b\".txt".to_owned(), at: form.len() - 5 });
        for cut in 0..form.len() - 5 {
            assert_eq!(parse_head(&form.as_bytes()[..cut], "b"), Ok(None), "{cut}");
        }
        assert_eq!(boundary("multipart/form-data; charset=x; boundary=\"a;b\"").unwrap(), "a;b");
        assert_eq!(boundary("multipart/form-data"), None);
    }

    #[test]
    fn what_is_no_form_is_told() {
        let check =
            |form: &str, expected| assert_eq!(parse_head(form.as_bytes(), "b"), Err(expected));
        check("--c\r\n", Malformed::Syntax);
        check("--bx\r\n", Malformed::Syntax);
        check(&format!("--b\r\n{}\r\n--b--\r\n", part("key", "k")), Malformed::NoFile);
        check("--b\r\nContent-Type: x\r\n\r\nv\r\n--b--", Malformed::Syntax);
        check("--b\r\nContent-Disposition: form-data; name=\"x\r\n\r\nv", Malformed::Syntax);
        let long = format!("--b\r\n{}", part("key", &"x".repeat(30_000)));
        check(&long, Malformed::TooLarge);
    }

    proptest! {
        #[test]
        fn a_file_ends_at_the_boundary_however_it_is_cut(
            file in "[\r\n\\-bx]{0,60}", behind in "[\r\n\\-bx]{0,20}", cuts in prop::collection::vec(1usize..9, 1..9)
        ) {
            let body = format!("{file}\r\n--bb{behind}");
            let end = end_of_file(body.as_bytes(), "bb").unwrap();
            let mut scanner = Scanner::new("bb");
            let (mut found, mut rest) = (Vec::new(), body.as_bytes());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, more) = rest.split_at((*cut).min(rest.len()));
                rest = more;
                let mut input = Bytes::copy_from_slice(piece);
                while let Some(bytes) = scanner.next(&mut input) {
                    assert!(!bytes.is_empty());
                    found.extend_from_slice(&bytes);
                }
            }
            prop_assert_eq!((&found[..], scanner.has_ended()), (&body.as_bytes()[..end], true));
        }

        #[test]
        fn no_form_panics(form in "(--b|\r\n|Content-Disposition: form-data; name=|\"|file|x|:|;|=){0,30}") {
            let _ = parse_head(form.as_bytes(), "b");
            let _ = boundary(&form);
        }
    }
}
