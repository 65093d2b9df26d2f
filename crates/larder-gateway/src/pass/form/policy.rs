//! The policy document of a form: what its signer lets be uploaded ("Creating a POST policy" in the S3
//! API Reference).

use crate::fault::Fault;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::HashSet;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Fields that no condition has to allow.
const FREE: [&str; 4] = ["policy", "x-amz-signature", "file", "bucket"];

/// A policy, read and not yet held against anything.
#[derive(Debug)]
pub(super) struct Policy {
    expires: OffsetDateTime,
    conditions: Vec<Condition>,
    /// The least and the most bytes of the file.
    range: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Condition {
    /// In lower case, without `$`.
    field: String,
    value: String,
    /// Whether the value is only how the field begins.
    prefix: bool,
    /// As it stands in the document.
    text: String,
}

impl Policy {
    /// Reads a policy as it stands in the form.
    pub(super) fn parse(encoded: &str) -> Result<Self, Fault> {
        let document = STANDARD.decode(encoded).map_err(|_| invalid("it is not valid base64"))?;
        let document: Value =
            serde_json::from_slice(&document).map_err(|_| invalid("it is not valid JSON"))?;
        let expires = document.get("expiration").and_then(Value::as_str);
        let expires = expires.ok_or_else(|| invalid("it has no expiration"))?;
        let expires = OffsetDateTime::parse(expires, &Rfc3339)
            .map_err(|_| invalid("its expiration is no date"))?;
        let listed = document.get("conditions").and_then(Value::as_array);
        let listed = listed.ok_or_else(|| invalid("it has no conditions"))?;
        let mut policy = Self { expires, conditions: Vec::new(), range: None };
        for condition in listed {
            policy.add(condition)?;
        }
        Ok(policy)
    }

    fn add(&mut self, condition: &Value) -> Result<(), Fault> {
        let text = condition.to_string();
        let odd = || invalid("one of its conditions is malformed");
        let field = |name: &str| name.trim_start_matches('$').to_ascii_lowercase();
        if let Value::Object(pairs) = condition {
            for (name, value) in pairs {
                let value = value.as_str().ok_or_else(odd)?.to_owned();
                let text = text.clone();
                self.conditions.push(Condition { field: field(name), value, prefix: false, text });
            }
            return Ok(());
        }
        let Some([kind, first, second]) = condition.as_array().map(Vec::as_slice) else {
            return Err(odd());
        };
        let kind = kind.as_str().ok_or_else(odd)?.to_ascii_lowercase();
        if kind == "content-length-range" {
            let number = |value: &Value| match value {
                Value::String(text) => text.parse().ok(),
                other => other.as_u64(),
            };
            self.range = number(first).zip(number(second));
            return self.range.map(|_| ()).ok_or_else(odd);
        }
        let prefix = match &*kind {
            "eq" => false,
            "starts-with" => true,
            _ => return Err(odd()),
        };
        let (name, value) = first.as_str().zip(second.as_str()).ok_or_else(odd)?;
        if !name.starts_with('$') {
            return Err(odd());
        }
        let value = value.to_owned();
        self.conditions.push(Condition { field: field(name), value, prefix, text });
        Ok(())
    }

    /// Holds the form's fields, of lower-case names, against the policy.
    pub(super) fn check(
        &self,
        fields: &[(String, String)],
        bucket: &str,
        now: OffsetDateTime,
    ) -> Result<(), Fault> {
        if now >= self.expires {
            return Err(Fault::denied("Invalid according to Policy: Policy expired."));
        }
        for condition in &self.conditions {
            let found = match &*condition.field {
                "bucket" => Some(bucket),
                name => fields.iter().find(|(field, _)| field == name).map(|(_, value)| &**value),
            };
            let found = found.unwrap_or_default();
            let holds = match condition.prefix {
                true => found.starts_with(&condition.value),
                false => found == condition.value,
            };
            if !holds {
                return Err(Fault::denied(format!(
                    "Invalid according to Policy: Policy Condition failed: {}",
                    condition.text
                )));
            }
        }
        let allowed: HashSet<&str> = self.conditions.iter().map(|c| c.field.as_str()).collect();
        let extra = fields.iter().map(|(name, _)| name.as_str()).find(|name| {
            !allowed.contains(name) && !FREE.contains(name) && !name.starts_with("x-ignore-")
        });
        match extra {
            Some(name) => Err(Fault::denied(format!(
                "Invalid according to Policy: Extra input fields: {name}"
            ))),
            None => Ok(()),
        }
    }

    /// Holds the length of the file against the policy.
    pub(super) fn check_length(&self, bytes: u64) -> Result<(), Fault> {
        match self.range {
            Some((least, _)) if bytes < least => Err(Fault::bad(
                "EntityTooSmall",
                "Your proposed upload is smaller than the minimum allowed size",
            )
            .with("ProposedSize", bytes.to_string())
            .with("MinSizeAllowed", least.to_string())),
            Some((_, most)) if bytes > most => Err(Fault::bad(
                "EntityTooLarge",
                "Your proposed upload exceeds the maximum allowed size",
            )
            .with("ProposedSize", bytes.to_string())
            .with("MaxSizeAllowed", most.to_string())),
            _ => Ok(()),
        }
    }
}

fn invalid(what: &str) -> Fault {
    Fault::bad("InvalidPolicyDocument", format!("Invalid Policy: {what}."))
}

#[cfg(test)]
mod tests {
    use super::Policy;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use time::OffsetDateTime;

    fn check(document: &str, fields: &[(&str, &str)], length: u64, expected: &str) {
        let fields: Vec<_> =
            fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let now = OffsetDateTime::from_unix_timestamp(1_369_353_600).unwrap();
        let outcome = Policy::parse(&STANDARD.encode(document)).and_then(|policy| {
            policy.check(&fields, "data", now)?;
            policy.check_length(length)
        });
        let found = outcome.map_or_else(|fault| fault.code().to_owned(), |()| String::new());
        assert_eq!(found, expected, "{document} {fields:?}");
    }

    fn policy(conditions: &str) -> String {
        format!("{{\"expiration\": \"2013-05-24T00:00:01.000Z\", \"conditions\": [{conditions}]}}")
    }

    #[test]
    fn every_condition_must_hold_and_every_field_must_be_allowed() {
        let one = policy(
            "{\"bucket\": \"data\"}, [\"starts-with\", \"$Key\", \"in/\"], {\"acl\": \"private\"}",
        );
        let good = [("key", "in/a"), ("acl", "private"), ("policy", "x"), ("x-ignore-a", "b")];
        check(&one, &good, 5, "");
        check(&one, &[("key", "out/a"), ("acl", "private")], 5, "AccessDenied");
        check(&one, &[("key", "in/a")], 5, "AccessDenied");
        check(
            &one,
            &[("key", "in/a"), ("acl", "private"), ("x-amz-meta-a", "b")],
            5,
            "AccessDenied",
        );
        check(&policy("{\"bucket\": \"other\"}"), &[], 5, "AccessDenied");
        check(&policy("[\"starts-with\", \"$x\", \"\"]"), &[("x", "anything")], 5, "");
        let range = policy("[\"content-length-range\", 2, \"6\"]");
        check(&range, &[], 5, "");
        check(&range, &[], 1, "EntityTooSmall");
        check(&range, &[], 7, "EntityTooLarge");
    }

    #[test]
    fn a_policy_that_is_none_or_is_over_is_refused() {
        let over = policy("").replace(":01.000Z", ":00Z");
        check(&over, &[], 0, "AccessDenied");
        for odd in [
            "",
            "[]",
            "{\"conditions\": []}",
            "{\"expiration\": \"soon\", \"conditions\": []}",
            "{\"expiration\": \"2013-05-24T00:00:01Z\"}",
            &policy("1"),
            &policy("[\"eq\", \"key\", \"a\"]"),
            &policy("[\"eq\", \"$key\"]"),
            &policy("[\"like\", \"$key\", \"a\"]"),
            &policy("{\"key\": 1}"),
            &policy("[\"content-length-range\", -1, 5]"),
        ] {
            check(odd, &[], 0, "InvalidPolicyDocument");
        }
    }
}
