//! The signature of a form: over its policy, by the key of the day that the form names ("Creating an
//! HTML form" in the S3 API Reference).

use super::scope::{Credential, parse_amz_date, seconds};
use super::{Guard, signature_mismatch};
use crate::fault::Fault;
use crate::keys::KeyRing;
use crate::pass::Form;
use http::StatusCode;
use larder_model::Principal;
use ring::hmac;
use time::OffsetDateTime;

/// How long a key of a day signs, in seconds; the policy's own expiration is usually shorter.
const MAX_AGE_S: i64 = 7 * 24 * 3600;

/// How far a signer's clock may be ahead of ours, in seconds.
const MAX_SKEW_S: i64 = 15 * 60;

impl Guard {
    /// Who signed a form's policy; the anonymous user where nobody has and anybody may.
    pub(crate) fn check_form(&self, form: &Form, keys: &KeyRing) -> Result<Principal, Fault> {
        let Some(policy) = form.get("policy") else {
            return if self.anonymous {
                Ok(Principal::anonymous())
            } else {
                Err(Fault::access_denied())
            };
        };
        if form.get("signature").is_some() || form.get("awsaccesskeyid").is_some() {
            return Err(super::unsupported());
        }
        if form.get("x-amz-security-token").is_some() {
            return Err(Fault::bad(
                "InvalidToken",
                "The provided token is malformed or otherwise invalid.",
            ));
        }
        let field = |name: &'static str| {
            form.get(name).ok_or_else(|| {
                let text = format!("Bucket POST must contain a field named '{name}'.");
                Fault::invalid_argument(text, name, "")
            })
        };
        if field("x-amz-algorithm")? != "AWS4-HMAC-SHA256" {
            return Err(super::unsupported());
        }
        let date = field("x-amz-date")?;
        let credential = field("x-amz-credential")?;
        let invalid = |what: String| Fault::invalid_argument(what, "x-amz-credential", credential);
        let credential = Credential::parse(credential)
            .ok_or_else(|| invalid("The Credential is mal-formed".to_owned()))?;
        let at = parse_amz_date(date)
            .ok_or_else(|| Fault::invalid_argument("Invalid date", "x-amz-date", date))?;
        credential.check(&self.regions, date).map_err(|fault| invalid(fault.to_string()))?;
        let age = seconds(self.clock.now()) - at;
        if !(-MAX_SKEW_S..=MAX_AGE_S).contains(&age) {
            return Err(Fault::denied("Invalid according to Policy: Policy expired."));
        }
        let mut signature = [0; 32];
        hex::decode_to_slice(field("x-amz-signature")?, &mut signature)
            .map_err(|_| signature_mismatch())?;
        let Credential { access_key, date, region, .. } = credential;
        let key = keys.signing_key(access_key, date, region).ok_or_else(|| {
            Fault::new(
                StatusCode::FORBIDDEN,
                "InvalidAccessKeyId",
                "The AWS Access Key Id you provided does not exist in our records.",
            )
        })?;
        hmac::verify(&key, policy.as_bytes(), &signature).map_err(|_| signature_mismatch())?;
        Ok(Principal::verified(access_key))
    }

    /// The time that policies are held against.
    pub(crate) fn now(&self) -> OffsetDateTime {
        let now = OffsetDateTime::from_unix_timestamp(seconds(self.clock.now()));
        // A clock beyond year 9999 lets nothing through any more.
        now.unwrap_or(time::PrimitiveDateTime::MAX.assume_utc())
    }
}
