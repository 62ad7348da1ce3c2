//! The grammars of names.

use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::principal::is_principal_name;

/// What is taken is in the grammar, and an id is written in one way only.
pub(super) fn names(bytes: &[u8]) {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let is_plain = !bytes.is_empty() && bytes.iter().all(plain);
    let is_name = is_plain && bytes.len() <= 128 && !matches!(bytes, b"." | b"..");
    assert_eq!(is_principal_name(bytes), is_name);
    if let Some(id) = InstanceId::from_hex(bytes) {
        assert_eq!(id.to_string().as_bytes(), bytes);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(name) = text.parse::<InstanceName>() {
        assert!(is_plain && bytes.len() <= 64);
        assert_eq!(name.as_str(), text);
        assert!(InstanceId::from_hex(bytes).is_none(), "a name and an id cannot be mistaken for each other");
    }
}
