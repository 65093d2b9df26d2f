//! A writer for the small XML documents of S3, without attributes but for the namespace of S3; and
//! [`tree`], their reader.

pub(crate) mod tree;

use std::fmt::Write;

/// The namespace of S3's answers.
pub(crate) const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// A document under construction.
pub(crate) struct Xml(String);

impl Xml {
    /// Begins with the declaration.
    pub(crate) fn new() -> Self {
        Self("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned())
    }

    /// Opens the root element in S3's namespace.
    pub(crate) fn root(&mut self, tag: &str) {
        self.put(format_args!("<{tag} xmlns=\"{NAMESPACE}\">"));
    }

    /// Opens an element.
    pub(crate) fn open(&mut self, tag: &str) {
        self.put(format_args!("<{tag}>"));
    }

    /// Closes an element.
    pub(crate) fn close(&mut self, tag: &str) {
        self.put(format_args!("</{tag}>"));
    }

    /// An element that holds text, escaped.
    pub(crate) fn text(&mut self, tag: &str, text: &str) {
        self.open(tag);
        self.escape(text);
        self.close(tag);
    }

    /// An element that holds something whose text needs no escaping, such as a number.
    pub(crate) fn plain(&mut self, tag: &str, value: impl std::fmt::Display) {
        self.put(format_args!("<{tag}>{value}</{tag}>"));
    }

    /// Escaped text inside the element that is open.
    pub(crate) fn escape(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                // S3 writes control characters as references, though XML 1.0 has no such
                // characters: that is what `encoding-type=url` is for.
                c if (c as u32) < 0x20 => self.put(format_args!("&#x{:X};", c as u32)),
                c => self.0.push(c),
            }
        }
    }

    /// The document.
    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(what);
    }
}

#[cfg(test)]
mod tests {
    use super::Xml;

    #[test]
    fn text_is_escaped() {
        let mut xml = Xml::new();
        xml.text("Key", "a<b>&\"c\"\r\u{1}é");
        let written = xml.finish();
        assert!(
            written.ends_with("<Key>a&lt;b&gt;&amp;&quot;c&quot;&#xD;&#x1;é</Key>"),
            "{written}"
        );
    }
}
