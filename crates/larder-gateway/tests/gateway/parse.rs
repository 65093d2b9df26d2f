//! Whatever a client sends, parsing neither panics nor reaches another bucket.

use larder_gateway::{Query, Target, parse_target};
use larder_model::{ETagCondition, RangeSpec};
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

proptest! {
    #[test]
    fn parsing_never_panics(path in any::<String>(), query in any::<String>(), header in any::<String>(), host in any::<Option<String>>()) {
        let _ = parse_target(&path, host.as_deref());
        let _ = Query::parse(&query);
        let _ = RangeSpec::parse(&header);
        let _ = ETagCondition::parse(&header);
    }

    #[test]
    fn an_encoded_key_comes_back_as_it_was(key in "\\PC{1,200}", bucket in "[a-z0-9]{3,20}") {
        let path = format!("/{bucket}/{}", super::sign::encode(&key));
        match parse_target(&path, None) {
            Ok(Target::Object(b, k)) => {
                prop_assert_eq!(b.as_str(), bucket);
                prop_assert_eq!(k.as_str(), key);
            }
            other => prop_assert!(key.len() > 1024, "{:?}", other),
        }
    }

    #[test]
    fn a_target_never_leaves_its_bucket(rest in any::<String>()) {
        if let Ok(Target::Bucket(bucket) | Target::Object(bucket, _)) = parse_target(&format!("/data/{rest}"), None) {
            prop_assert_eq!(bucket.as_str(), "data");
        }
    }
}
