//! Small documents of S3, read into a tree of elements and their text: no attributes, no namespaces,
//! no entities but XML's own. A document type is refused, so nothing can be made to grow.

use super::Xml;
use quick_xml::Reader;
use quick_xml::events::{BytesRef, Event};

/// The deepest element; S3's documents have half as many levels.
const MAX_DEPTH: usize = 12;

/// An element.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// Without its namespace.
    pub(crate) name: String,
    /// All of its own text.
    pub(crate) text: String,
    pub(crate) children: Vec<Node>,
}

impl Node {
    /// Reads a document of at most `max_nodes` elements. `None` for whatever is not well-formed UTF-8
    /// XML, has a document type, or is larger or deeper than that.
    pub(crate) fn parse(document: &[u8], max_nodes: usize) -> Option<Self> {
        let text = std::str::from_utf8(document).ok()?;
        let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
        let mut open: Vec<Self> = Vec::new();
        let mut root = None;
        let mut nodes = 0;
        loop {
            let event = reader.read_event().ok()?;
            if let Event::Start(tag) | Event::Empty(tag) = &event {
                nodes += 1;
                if nodes > max_nodes || open.len() >= MAX_DEPTH || root.is_some() {
                    return None;
                }
                let name = std::str::from_utf8(tag.local_name().into_inner()).ok()?.to_owned();
                open.push(Self { name, ..Self::default() });
            }
            match event {
                Event::End(_) | Event::Empty(_) => {
                    let node = open.pop()?;
                    match open.last_mut() {
                        Some(parent) => parent.children.push(node),
                        None => root = Some(node),
                    }
                }
                Event::Text(text) => push(&mut open, &text.decode().ok()?)?,
                Event::CData(text) => push(&mut open, &text.decode().ok()?)?,
                Event::GeneralRef(entity) => {
                    let mut buffer = [0; 4];
                    push(&mut open, resolve(&entity)?.encode_utf8(&mut buffer))?;
                }
                Event::DocType(_) => return None,
                Event::Start(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
                Event::Eof => return root.filter(|_| open.is_empty()),
            }
        }
    }

    /// The text of the first child of this name.
    pub(crate) fn child(&self, name: &str) -> Option<&str> {
        self.children.iter().find(|child| child.name == name).map(|child| &*child.text)
    }

    /// Writes the element, as the root of a document or within one.
    pub(crate) fn write(&self, xml: &mut Xml, root: bool) {
        match root {
            true => xml.root(&self.name),
            false => xml.open(&self.name),
        }
        if self.children.is_empty() {
            xml.escape(&self.text);
        }
        for child in &self.children {
            child.write(xml, false);
        }
        xml.close(&self.name);
    }
}

/// Text outside the root may only be blank.
fn push(open: &mut [Node], text: &str) -> Option<()> {
    match open.last_mut() {
        Some(node) => node.text.push_str(text),
        None if text.trim().is_empty() => {}
        None => return None,
    }
    Some(())
}

fn resolve(entity: &BytesRef<'_>) -> Option<char> {
    if let Some(character) = entity.resolve_char_ref().ok()? {
        return Some(character);
    }
    match &*entity.decode().ok()? {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_DEPTH, Node};
    use crate::xml::Xml;

    #[test]
    fn a_document_is_read_and_written() {
        let text = "<?xml version=\"1.0\"?>\n<a:D xmlns:a=\"x\"><!-- c --><Q>true</Q>\
            <O><K>a&amp;b&#x41;&#13;<![CDATA[<c>]]></K></O><E/></a:D>\n";
        let node = Node::parse(text.as_bytes(), 10).unwrap();
        assert_eq!((&*node.name, node.child("Q"), node.child("E")), ("D", Some("true"), Some("")));
        assert_eq!(node.children[1].child("K"), Some("a&bA\r<c>"));
        let mut xml = Xml::new();
        node.write(&mut xml, true);
        let again = Node::parse(xml.finish().as_bytes(), 10).unwrap();
        assert_eq!(again, node);
    }

    #[test]
    fn what_is_no_small_document_is_refused() {
        let deep = format!("{}{}", "<a>".repeat(MAX_DEPTH + 1), "</a>".repeat(MAX_DEPTH + 1));
        for text in [
            "",
            "text",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "<a/>text",
            "<a>&b;</a>",
            "<a>&#0;</a>",
            "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>",
            "<!DOCTYPE a><a/>",
            "<a><b/><b/><b/></a>",
            &deep,
        ] {
            assert_eq!(Node::parse(text.as_bytes(), 3), None, "{text}");
        }
        assert_eq!(Node::parse(b"<a>\xff</a>", 3), None);
    }
}
