//! Continuation tokens of our own: the last listed key or prefix, in letters that XML and URLs hold.

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What tells our tokens from those of an origin.
const MARK: &str = "larder-";

/// The token for a page that ended at `marker`.
pub(crate) fn encode(marker: &str) -> String {
    format!("{MARK}{}", utf8_percent_encode(marker, NON_ALPHANUMERIC))
}

/// Whether [`encode`] may have made it.
pub(crate) fn is_ours(token: &str) -> bool {
    token.starts_with(MARK)
}

/// The marker inside; `None` for a token that [`encode`] did not make.
pub(crate) fn decode(token: &str) -> Option<String> {
    let marker = token.strip_prefix(MARK)?;
    let marker = percent_decode_str(marker).decode_utf8().ok()?.into_owned();
    (encode(&marker) == token).then_some(marker)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn any_marker_survives() {
        for marker in ["", "a/b", "%41", "ключ\u{1}", "a b+c"] {
            assert_eq!(decode(&encode(marker)).as_deref(), Some(marker));
        }
    }

    #[test]
    fn a_foreign_token_is_refused() {
        for token in ["a/b", "a", "larder-a/b", "larder-%", "larder-%ff", "larder-%4"] {
            assert_eq!(decode(token), None, "{token}");
        }
    }
}
