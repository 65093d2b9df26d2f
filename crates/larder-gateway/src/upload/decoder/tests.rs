//! However the network cuts a body, the same comes out of it; and what was changed on the way does not
//! come out as if nothing had happened.

use super::super::checks::{Algorithm, Promise, Promises};
use super::super::chunked::{Chunked, Seal};
use super::{Broken, Decoder, Framing};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderName;
use proptest::prelude::{
    Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use ring::{digest, hmac};

const SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
const TIME: &str = "20130524T000000Z";
const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";
const TRAILER: HeaderName = HeaderName::from_static("x-amz-checksum-sha256");

/// How a body is told.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Plain,
    Signed,
    SignedTrailer,
    UnsignedTrailer,
}

fn forms() -> impl Strategy<Value = Form> {
    prop_oneof![
        Just(Form::Plain),
        Just(Form::Signed),
        Just(Form::SignedTrailer),
        Just(Form::UnsignedTrailer)
    ]
}

fn key() -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, b"some signing key")
}

fn sha(bytes: &[u8]) -> Vec<u8> {
    digest::digest(&digest::SHA256, bytes).as_ref().to_vec()
}

fn sign(kind: &str, fields: &[&str]) -> String {
    let text = format!("AWS4-HMAC-SHA256-{kind}\n{TIME}\n{SCOPE}\n{}", fields.join("\n"));
    hex::encode(hmac::sign(&key(), text.as_bytes()))
}

/// The body of a payload, in chunks of `chunk` bytes.
fn encode(form: Form, payload: &[u8], chunk: usize) -> Vec<u8> {
    if form == Form::Plain {
        return payload.to_vec();
    }
    let signed = form != Form::UnsignedTrailer;
    let mut body = Vec::new();
    let mut last = SEED.to_owned();
    for piece in payload.chunks(chunk).chain([&[][..]]) {
        body.extend(format!("{:x}", piece.len()).into_bytes());
        if signed {
            last = sign("PAYLOAD", &[&last, &hex::encode(sha(b"")), &hex::encode(sha(piece))]);
            body.extend(format!(";chunk-signature={last}").into_bytes());
        }
        body.extend(b"\r\n");
        body.extend(piece);
        if !piece.is_empty() {
            body.extend(b"\r\n");
        }
    }
    if form != Form::Signed {
        let value = STANDARD.encode(sha(payload));
        body.extend(format!("{TRAILER}:{value}\r\n").into_bytes());
        if signed {
            let hash = hex::encode(sha(format!("{TRAILER}:{value}\n").as_bytes()));
            let signature = sign("TRAILER", &[&last, &hash]);
            body.extend(format!("x-amz-trailer-signature:{signature}\r\n").into_bytes());
        }
    }
    body.extend(b"\r\n");
    body
}

fn decoder(form: Form, payload: &[u8]) -> Decoder {
    let seal = || Seal::new(key(), TIME, SCOPE, SEED);
    let len = payload.len() as u64;
    let trailing =
        Promises { checksum: Some(Promise::Trailer(Algorithm::Sha256)), ..Promises::default() };
    let (framing, promises) = match form {
        Form::Plain => {
            let sha256 = sha(payload).try_into().ok();
            (Framing::Plain, Promises { sha256, ..Promises::default() })
        }
        Form::Signed => (chunked(Some(seal()), None), Promises::default()),
        Form::SignedTrailer => (chunked(Some(seal()), Some(TRAILER)), trailing),
        Form::UnsignedTrailer => (chunked(None, Some(TRAILER)), trailing),
    };
    Decoder::new(framing, promises, len)
}

fn chunked(seal: Option<Seal>, trailer: Option<HeaderName>) -> Framing {
    Framing::Chunked(Box::new(Chunked::new(seal, trailer)))
}

fn decode(mut decoder: Decoder, body: &[u8], cuts: &[usize]) -> Result<Vec<u8>, Broken> {
    let mut payload = Vec::new();
    let mut rest = body;
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let cut = cuts.next().map_or(1, |cut| cut % 97 + 1).min(rest.len());
        let (piece, behind) = rest.split_at(cut);
        rest = behind;
        let mut input = Bytes::copy_from_slice(piece);
        while let Some(bytes) = decoder.next(&mut input)? {
            assert!(!bytes.is_empty());
            payload.extend_from_slice(&bytes);
        }
    }
    decoder.finish()?;
    Ok(payload)
}

fn payloads() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..400)
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(any::<usize>(), 1..20)
}

proptest! {
    #[test]
    fn any_split_of_frames_gives_the_same(form in forms(), payload in payloads(), chunk in 1usize..200, cuts in cuts()) {
        let body = encode(form, &payload, chunk);
        prop_assert_eq!(decode(decoder(form, &payload), &body, &cuts), Ok(payload));
    }

    #[test]
    fn a_flipped_bit_is_refused_or_changes_nothing(form in forms(), payload in payloads(), chunk in 1usize..200, cuts in cuts(), at in any::<usize>(), bit in 0u8..8) {
        let mut body = encode(form, &payload, chunk);
        if !body.is_empty() {
            let at = at % body.len();
            body[at] ^= 1 << bit;
            // What the case of a digit or the end of the last line says is the same either way.
            if let Ok(found) = decode(decoder(form, &payload), &body, &cuts) {
                prop_assert_eq!(found, payload);
                prop_assert!(form != Form::Plain);
            }
        }
    }

    #[test]
    fn a_body_that_is_cut_or_goes_on_is_refused(form in forms(), payload in payloads(), chunk in 1usize..200, cuts in cuts(), cut in any::<usize>()) {
        let body = encode(form, &payload, chunk);
        let mut longer = body.clone();
        longer.push(b'x');
        prop_assert!(decode(decoder(form, &payload), &longer, &cuts).is_err());
        if !body.is_empty() {
            let shorter = &body[..cut % body.len()];
            if let Ok(found) = decode(decoder(form, &payload), shorter, &cuts) {
                // Only empty lines behind everything may be missing.
                prop_assert!(form != Form::Plain);
                prop_assert_eq!(found, payload);
                prop_assert!(body[shorter.len()..].iter().all(|b| b"\r\n".contains(b)));
            }
        }
    }

    #[test]
    fn whatever_comes_nothing_panics(form in forms(), body in prop::collection::vec(any::<u8>(), 0..600), cuts in cuts()) {
        let _ = decode(decoder(form, b"payload"), &body, &cuts);
    }

    #[test]
    fn chunks_like_real_ones_do_not_panic(form in forms(), body in "([0-9a-f]{1,3}(;chunk-signature=[0-9a-f]{60,66})?\r\n[a-z]{0,40}\r\n){0,5}(0\r\n)?(x-amz-checksum-sha256: ?[a-z=]{0,10}\r\n)?", cuts in cuts()) {
        let _ = decode(decoder(form, b"payload"), body.as_bytes(), &cuts);
    }
}
