//! Answers behind an alias: the origin's names turned back into the client's.

use super::place::Alias;
use crate::xml::Xml;
use crate::xml::tree::Node;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The most elements of a document that is mapped: a page of 1,000 versions has 15,000.
const MAX_NODES: usize = 100_000;

/// What `encoding-type=url` leaves as it is.
const URL_KEPT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// A document in the client's names; `None` where it holds what cannot be mapped. `location` is the
/// address of the request's object.
pub(super) fn reveal(document: &[u8], alias: &Alias, location: &str) -> Option<String> {
    let mut root = Node::parse(document, MAX_NODES)?;
    let encoded = root.child("EncodingType") == Some("url");
    map(&mut root, alias, location, encoded)?;
    let mut xml = Xml::new();
    root.write(&mut xml, true);
    Some(xml.finish())
}

fn map(node: &mut Node, alias: &Alias, location: &str, encoded: bool) -> Option<()> {
    if !node.children.is_empty() {
        return node.children.iter_mut().try_for_each(|child| map(child, alias, location, encoded));
    }
    let text = match node.name.as_str() {
        "Bucket" | "Name" | "BucketName" => alias.bucket.as_str().to_owned(),
        "Location" => location.to_owned(),
        "Resource" | "HostId" | "RequestId" => String::new(),
        // A marker that was not told comes back empty, and so does the prefix of an old answer.
        "KeyMarker" | "NextKeyMarker" | "Prefix" if node.text.is_empty() => String::new(),
        "Key" | "KeyMarker" | "NextKeyMarker" | "Prefix" => client_key(&node.text, alias, encoded)?,
        _ => return Some(()),
    };
    node.text = text;
    Some(())
}

fn client_key(text: &str, alias: &Alias, encoded: bool) -> Option<String> {
    if !encoded {
        return text.strip_prefix(&alias.hidden).map(str::to_owned);
    }
    let plain = text.replace('+', " ");
    let key = percent_decode_str(&plain).decode_utf8().ok()?;
    let key = key.strip_prefix(&alias.hidden)?;
    Some(utf8_percent_encode(key, URL_KEPT).to_string())
}

/// The code and the message of an error document, as far as they say no hidden name.
pub(super) fn error(document: &[u8], alias: &Alias) -> (String, String) {
    let root = Node::parse(document, 1000).filter(|root| root.name == "Error").unwrap_or_default();
    let text = |name| root.child(name).unwrap_or_default().to_owned();
    let message = text("Message");
    let names = [alias.origin_bucket.as_str(), alias.hidden.trim_end_matches('/')];
    let tells = names.iter().any(|name| !name.is_empty() && message.contains(name));
    let message = if tells { "The origin refused the request.".to_owned() } else { message };
    (text("Code"), message)
}

#[cfg(test)]
mod tests {
    use super::{error, reveal};
    use crate::pass::place::Alias;
    use larder_model::BucketName;

    fn alias() -> Alias {
        Alias {
            bucket: BucketName::new("pictures").unwrap(),
            origin_bucket: BucketName::new("train-data").unwrap(),
            hidden: "deep in/".to_owned(),
        }
    }

    #[test]
    fn names_are_the_clients_and_nothing_else_is_touched() {
        let document = "<R xmlns=\"x\"><Location>http://train-data/deep in/k</Location>\
            <Bucket>train-data</Bucket><Key>deep in/a&amp;b</Key><UploadId>u</UploadId></R>";
        let shown = reveal(document.as_bytes(), &alias(), "http://h/pictures/k").unwrap();
        assert!(
            shown.contains("<Location>http://h/pictures/k</Location><Bucket>pictures</Bucket>")
        );
        assert!(shown.ends_with("<Key>a&amp;b</Key><UploadId>u</UploadId></R>"), "{shown}");
        let url = "<R><EncodingType>url</EncodingType><Prefix>deep+in/</Prefix><KeyMarker/>\
            <Version><Key>deep%20in%2Fa%20b</Key><ETag>e</ETag></Version></R>";
        let shown = reveal(url.as_bytes(), &alias(), "").unwrap();
        assert!(shown.contains("<Prefix></Prefix><KeyMarker></KeyMarker>"), "{shown}");
        assert!(shown.contains("<Key>a%20b</Key><ETag>e</ETag>"), "{shown}");
        for stray in ["<R><Key>other/a</Key></R>", "no xml", "<R><Prefix>x</Prefix></R>"] {
            assert_eq!(reveal(stray.as_bytes(), &alias(), ""), None, "{stray}");
        }
    }

    #[test]
    fn an_error_says_no_hidden_name() {
        let told = |message: &str| {
            let document = format!(
                "<Error><Code>NoSuchKey</Code><Message>{message}</Message><Key>deep in/k</Key></Error>"
            );
            error(document.as_bytes(), &alias()).1
        };
        assert_eq!(told("There is none."), "There is none.");
        assert_eq!(told("No train-data"), "The origin refused the request.");
        assert_eq!(told("No deep in/k"), "The origin refused the request.");
    }
}
