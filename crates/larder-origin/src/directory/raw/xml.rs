//! The XML of S3: small documents without attributes that matter.
//!
//! Invariant: a document is read whole or refused. It has no DTD, no processing instruction and no
//! entity but XML's own five, and neither its bytes nor its elements nor its depth can grow with a
//! client's patience.

use super::answer::malformed_xml;
use larder_model::OriginError;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;
use std::fmt::{self, Write as _};

/// The largest document that is read; S3's limit for DeleteObjects (S3 API, DeleteObjects).
pub(super) const DOCUMENT_BYTES: u64 = 2 * 1024 * 1024;

/// A list of 10,000 parts with all that can be said of each has fewer.
const ELEMENTS: usize = 100_000;
const DEPTH: usize = 16;

/// The namespace of S3's documents.
const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// An element that was read: with text, or with elements.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) name: String,
    text: String,
    children: Vec<Element>,
}

impl Element {
    /// Reads a document whose root has this name.
    pub(super) fn parse(document: &[u8], root: &str) -> Result<Self, OriginError> {
        read(document).filter(|found| found.name == root).ok_or_else(malformed_xml)
    }

    /// The elements inside, each of which must have one of these names.
    pub(super) fn children(&self, known: &[&str]) -> Result<&[Self], OriginError> {
        let strange = |child: &Self| !known.contains(&child.name.as_str());
        let stray_text = !self.text.trim().is_empty();
        if stray_text || self.children.iter().any(strange) {
            return Err(malformed_xml());
        }
        Ok(&self.children)
    }

    /// The text of the only element of this name; `None` when there is none.
    pub(super) fn text_of(&self, name: &str) -> Result<Option<&str>, OriginError> {
        let mut found = self.children.iter().filter(|child| child.name == name);
        match (found.next(), found.next()) {
            (None, _) => Ok(None),
            (Some(child), None) => child.as_text().map(Some),
            (Some(_), Some(_)) => Err(malformed_xml()),
        }
    }

    /// The text inside.
    pub(super) fn as_text(&self) -> Result<&str, OriginError> {
        if self.children.is_empty() { Ok(&self.text) } else { Err(malformed_xml()) }
    }
}

/// The root of a well-formed document.
fn read(document: &[u8]) -> Option<Element> {
    let text = std::str::from_utf8(document).ok()?;
    let mut reader = Reader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    reader.config_mut().check_comments = true;
    let (mut open, mut root, mut elements): (Vec<Element>, _, _) = (Vec::new(), None, 0);
    let mut first = true;
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) => {
                elements += 1;
                let allowed = root.is_none() && open.len() < DEPTH && elements <= ELEMENTS;
                allowed.then(|| open.push(Element::default()))?;
                open.last_mut()?.name = name(&start)?;
            }
            Event::End(_) => close(&mut open, &mut root)?,
            Event::Empty(start) => {
                elements += 1;
                let allowed = root.is_none() && open.len() < DEPTH && elements <= ELEMENTS;
                allowed.then(|| open.push(Element::default()))?;
                open.last_mut()?.name = name(&start)?;
                close(&mut open, &mut root)?;
            }
            Event::Text(text) => add(&mut open, &text.xml10_content().ok()?)?,
            Event::CData(text) => {
                open.last_mut()?.text.push_str(&text.xml10_content().ok()?);
            }
            Event::GeneralRef(reference) => open.last_mut()?.text.push_str(&resolve(&reference)?),
            Event::Decl(declaration) if first => {
                let encoding = declaration.encoding().transpose().ok()?;
                encoding.is_none_or(|e| e.eq_ignore_ascii_case(b"utf-8")).then_some(())?;
            }
            Event::Comment(_) => {}
            Event::Eof => return root.filter(|_| open.is_empty()),
            Event::Decl(_) | Event::PI(_) | Event::DocType(_) => return None,
        }
        first = false;
    }
}

/// A name without its prefix. The attributes are looked at for their form only.
fn name(start: &BytesStart<'_>) -> Option<String> {
    start.attributes().all(|attribute| attribute.is_ok()).then_some(())?;
    Some(std::str::from_utf8(start.local_name().as_ref()).ok()?.to_owned())
}

fn add(open: &mut [Element], text: &str) -> Option<()> {
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None => text.trim().is_empty().then_some(())?,
    }
    Some(())
}

fn resolve(reference: &BytesRef<'_>) -> Option<String> {
    match reference.resolve_char_ref().ok()? {
        Some(character) => Some(character.to_string()),
        None => resolve_predefined_entity(&reference.decode().ok()?).map(str::to_owned),
    }
}

fn close(open: &mut Vec<Element>, root: &mut Option<Element>) -> Option<()> {
    let closed = open.pop()?;
    match open.last_mut() {
        Some(parent) => parent.children.push(closed),
        None => *root = Some(closed),
    }
    Some(())
}

/// A document that is written.
#[derive(Debug)]
pub(super) struct Document {
    text: String,
    root: &'static str,
}

impl Document {
    /// Begins with the root in S3's namespace.
    pub(super) fn new(root: &'static str) -> Self {
        let text =
            format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root} xmlns=\"{NAMESPACE}\">");
        Self { text, root }
    }

    /// As S3's error documents, which are in no namespace.
    pub(super) fn bare(root: &'static str) -> Self {
        Self { text: format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root}>"), root }
    }

    /// An element with text.
    pub(super) fn text(&mut self, name: &str, text: impl AsRef<str>) -> &mut Self {
        self.put(format_args!("<{name}>"));
        for character in text.as_ref().chars() {
            match character {
                '&' => self.text.push_str("&amp;"),
                '<' => self.text.push_str("&lt;"),
                '>' => self.text.push_str("&gt;"),
                '"' => self.text.push_str("&quot;"),
                // XML 1.0 has no form for most of these; S3 writes references all the same.
                control if control < ' ' => self.put(format_args!("&#x{:X};", control as u32)),
                other => self.text.push(other),
            }
        }
        self.put(format_args!("</{name}>"));
        self
    }

    /// An element with text, if there is any.
    pub(super) fn maybe(&mut self, name: &str, text: Option<impl AsRef<str>>) -> &mut Self {
        if let Some(text) = text {
            self.text(name, text);
        }
        self
    }

    /// An element with a number or another word that needs no escape.
    pub(super) fn plain(&mut self, name: &str, value: impl fmt::Display) -> &mut Self {
        self.put(format_args!("<{name}>{value}</{name}>"));
        self
    }

    /// An element with elements.
    pub(super) fn inside(&mut self, name: &str, write: impl FnOnce(&mut Self)) -> &mut Self {
        self.put(format_args!("<{name}>"));
        write(self);
        self.put(format_args!("</{name}>"));
        self
    }

    /// An element that is written as it is.
    pub(super) fn verbatim(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// The whole document.
    pub(super) fn finish(mut self) -> String {
        let root = self.root;
        self.put(format_args!("</{root}>"));
        self.text
    }

    fn put(&mut self, what: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.text.write_fmt(what);
    }
}

#[cfg(test)]
mod tests {
    use super::{DEPTH, Document, ELEMENTS, Element, read};

    fn text(document: &str) -> Option<String> {
        let root = read(document.as_bytes())?;
        root.text_of("a").ok()?.map(str::to_owned)
    }

    #[test]
    fn text_is_read_as_it_was_meant() {
        let check = |document: &str, expected: &str| {
            assert_eq!(text(document).as_deref(), Some(expected), "{document}");
        };
        check("<r><a> b </a></r>", " b ");
        check("<r><a/></r>", "");
        check("\u{feff}<?xml version='1.0' encoding='UTF-8'?>\n<r>\n <a>x</a>\n</r>\n", "x");
        check("<x:r xmlns:x='y'><x:a>&lt;&amp;&#13;&#x41;&quot;</x:a></x:r>", "<&\rA\"");
        check("<r><a>b<![CDATA[<c>&]]>d</a><!-- e --></r>", "b<c>&d");
        check("<r><a>b<!-- c -->d</a></r>", "bd");
    }

    #[test]
    fn nonsense_is_refused() {
        for document in [
            "",
            "x",
            "<r>",
            "<r></s>",
            "<r/><s/>",
            "<r/>x",
            "x<r/>",
            "<r>&b;</r>",
            "<r>&</r>",
            "<r>&#0;</r>",
            "<r a=b/>",
            "<r a='1' a='2'/>",
            "<!DOCTYPE r><r/>",
            "<!DOCTYPE r [<!ENTITY b 'c'>]><r>&b;</r>",
            "<r><!DOCTYPE r></r>",
            "<?pi x?><r/>",
            " <?xml version='1.0'?><r/>",
            "<?xml version='1.0' encoding='latin-1'?><r/>",
            "<![CDATA[r]]>",
        ] {
            assert_eq!(read(document.as_bytes()), None, "{document}");
        }
        assert_eq!(read(b"<r>\xff</r>"), None);
    }

    #[test]
    fn size_and_depth_have_an_end() {
        let nested = |depth: usize| "<r>".repeat(depth) + &"</r>".repeat(depth);
        assert!(read(nested(DEPTH).as_bytes()).is_some());
        assert_eq!(read(nested(DEPTH + 1).as_bytes()), None);
        let wide = |count: usize| format!("<r>{}</r>", "<a/>".repeat(count));
        assert!(read(wide(ELEMENTS - 1).as_bytes()).is_some());
        assert_eq!(read(wide(ELEMENTS).as_bytes()), None);
    }

    #[test]
    fn strange_and_doubled_elements_are_refused() {
        let root = Element::parse(b"<r><a>1</a><b/><b/></r>", "r").unwrap();
        assert!(Element::parse(b"<r/>", "s").is_err());
        assert!(root.children(&["a", "b"]).is_ok() && root.children(&["a"]).is_err());
        assert!(root.text_of("b").is_err());
        assert_eq!(root.text_of("c").unwrap(), None);
        assert!(root.as_text().is_err());
        let mixed = Element::parse(b"<r>x<a/></r>", "r").unwrap();
        assert!(mixed.children(&["a"]).is_err());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let odd = "a<b>&\"c\" \r\n\u{1}é";
        let mut document = Document::new("r");
        document.text("a", odd).plain("n", 7).inside("i", |inside| {
            inside.maybe("none", None::<&str>);
        });
        let document = document.finish();
        assert_eq!(text(&document).as_deref(), Some(odd), "{document}");
    }
}
