//! The checksums that OSS and BOS send, written from their definitions: another hand than the
//! product's, so that both would have to be wrong in the same way.

use md5::{Digest as _, Md5};

/// CRC-64/XZ, which OSS calls `crc64ecma`: ECMA-182's polynomial reflected, all ones in and out.
#[must_use]
pub fn crc64(data: &[u8]) -> u64 {
    let table = table(0xc96c_5795_d787_0f42);
    !data.iter().fold(!0, |crc: u64, byte| table[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

/// CRC-32 of ISO-HDLC, as in zip and Ethernet.
#[must_use]
pub fn crc32(data: &[u8]) -> u32 {
    let table = table(0xedb8_8320);
    let start = u64::from(u32::MAX);
    let crc =
        data.iter().fold(start, |crc, byte| table[usize::from(crc as u8 ^ byte)] ^ (crc >> 8));
    !(crc as u32)
}

/// The remainder of each byte for a reflected polynomial of at most 64 bits.
fn table(polynomial: u64) -> [u64; 256] {
    std::array::from_fn(|byte| {
        let step = |crc: u64, _| if crc & 1 == 1 { (crc >> 1) ^ polynomial } else { crc >> 1 };
        (0..8).fold(byte as u64, step)
    })
}

/// The value of `Content-MD5` for a body.
#[must_use]
pub fn content_md5(data: &[u8]) -> String {
    base64(&Md5::digest(data))
}

/// Base64 with padding (RFC 4648 §4).
#[must_use]
pub fn base64(data: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for piece in data.chunks(3) {
        let bits =
            (0..3).fold(0_u32, |bits, at| bits << 8 | u32::from(*piece.get(at).unwrap_or(&0)));
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= piece.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{base64, content_md5, crc32, crc64};

    #[test]
    fn the_check_values_of_the_catalogue_of_crcs_come_out() {
        assert_eq!(crc64(b"123456789"), 0x995d_c9bb_df19_39fa);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!((crc64(b""), crc32(b"")), (0, 0));
    }

    #[test]
    fn base64_agrees_with_rfc_4648() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, coded) in cases {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(content_md5(b"abc"), "kAFQmDzST7DWlj99KOF/cg==");
    }
}
