//! Enough of XML to compare two answers by what they say: elements and texts; attributes, comments
//! and white space between elements are left out.

/// An element.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Element {
    /// Its name.
    pub name: String,
    /// Its own text, decoded, without the white space around it if it has children.
    pub text: String,
    /// Its children, in their order.
    pub children: Vec<Self>,
}

/// The root element of a document; `None` if it is not well-formed.
#[must_use]
pub fn parse(text: &str) -> Option<Element> {
    let mut open = vec![Element::default()];
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('<') {
        open.last_mut()?.text += &decode(before);
        let (tag, behind) = behind.split_once('>')?;
        rest = behind;
        if tag.starts_with(['?', '!']) {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            let mut done = open.pop()?;
            if done.name != name.trim() {
                return None;
            }
            if !done.children.is_empty() {
                done.text = done.text.trim().to_owned();
            }
            open.last_mut()?.children.push(done);
            continue;
        }
        let (tag, empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let name = tag.split_whitespace().next()?.to_owned();
        let element = Element { name, ..Element::default() };
        if empty {
            open.last_mut()?.children.push(element);
        } else {
            open.push(element);
        }
    }
    let root = open.pop()?;
    (open.is_empty() && root.children.len() == 1).then(|| root.children.into_iter().next())?
}

fn decode(text: &str) -> String {
    let mut decoded = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        decoded += before;
        let (name, behind) = behind.split_once(';').unwrap_or((behind, ""));
        rest = behind;
        let number = name.strip_prefix("#x").map_or_else(
            || name.strip_prefix('#').and_then(|digits| digits.parse().ok()),
            |digits| u32::from_str_radix(digits, 16).ok(),
        );
        match (name, number.and_then(char::from_u32)) {
            ("amp", _) => decoded.push('&'),
            ("lt", _) => decoded.push('<'),
            ("gt", _) => decoded.push('>'),
            ("quot", _) => decoded.push('"'),
            ("apos", _) => decoded.push('\''),
            (_, Some(letter)) => decoded.push(letter),
            (name, None) => decoded += &format!("&{name};"),
        }
    }
    decoded + rest
}

/// How two elements differ: children of one name are compared in their order, children of different
/// names may stand in any.
pub fn differences(path: &str, left: &Element, right: &Element, found: &mut Vec<(String, String)>) {
    let path = format!("{path}/{}", left.name);
    if left.name != right.name {
        found.push((path, format!("the element {} is {}", left.name, right.name)));
        return;
    }
    if left.text != right.text {
        found.push((path.clone(), format!("{:?} is {:?}", left.text, right.text)));
    }
    let mut names: Vec<&str> = Vec::new();
    for child in left.children.iter().chain(&right.children) {
        if !names.contains(&child.name.as_str()) {
            names.push(&child.name);
        }
    }
    for name in names {
        fn of<'a>(element: &'a Element, name: &str) -> Vec<&'a Element> {
            element.children.iter().filter(|child| child.name == name).collect()
        }
        let (lefts, rights) = (of(left, name), of(right, name));
        if lefts.len() != rights.len() {
            let shown = |all: &[&Element]| {
                all.iter().map(|one| one.text.clone()).take(3).collect::<Vec<_>>()
            };
            let (few, many) = (shown(&lefts), shown(&rights));
            let told = format!("{} times is {} times: {few:?} {many:?}", lefts.len(), rights.len());
            found.push((format!("{path}/{name}"), told));
        }
        for (left, right) in lefts.into_iter().zip(rights) {
            differences(&path, left, right, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{differences, parse};

    fn check(left: &str, right: &str, expected: &[&str]) {
        let mut found = Vec::new();
        differences("", &parse(left).unwrap(), &parse(right).unwrap(), &mut found);
        let found: Vec<String> = found.into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, expected, "{left} {right}");
    }

    #[test]
    fn documents_are_compared_by_what_they_say() {
        let head = "<?xml version=\"1.0\"?>\n";
        check("<A><B>1</B><C/></A>", "<A>\n <C></C> <B>1</B>\n</A>", &[]);
        check(&format!("{head}<A x='y'>a&amp;&#38;&#x26;</A>"), "<A>a&amp;&amp;&amp;</A>", &[]);
        check("<A><B>1</B></A>", "<A><B>2</B></A>", &["/A/B"]);
        check("<A><B>1</B></A>", "<A><B>1</B><B>1</B></A>", &["/A/B"]);
        check("<A><B>1</B><B>2</B></A>", "<A><B>2</B><B>1</B></A>", &["/A/B", "/A/B"]);
        check("<A/>", "<B/>", &["/A"]);
        check("<A/>", "<A><C/></A>", &["/A/C"]);
        check("<A> x </A>", "<A>x</A>", &["/A"]);
    }

    #[test]
    fn what_is_not_xml_is_none() {
        for text in ["", "plain", "<A>", "<A></B>", "</A>", "<A/><B/>", "{\"a\": 1}"] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
