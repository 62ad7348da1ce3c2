//! The grammars of names, and what proves them. The functions that try tokens, certificates and files are the
//! server's own.

use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::principal::is_principal_name;
pub(super) use stickycas_server::fuzzing::{
    certificate, certificate_seeds, credentials, credentials_seeds, token, token_seeds,
};

/// A name that is taken is in the grammar, and an id is written in one way only.
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

/// Names of every length that matters, ids, and what is neither.
pub(super) fn names_seeds() -> Vec<Vec<u8>> {
    let long = |length| "x".repeat(length);
    let id = InstanceId::new(0x0123_4567_89ab_cdef).to_string();
    let names = [
        "a".to_owned(),
        "p-1".to_owned(),
        "Ann.B_9".to_owned(),
        ".".to_owned(),
        "..".to_owned(),
        long(64),
        long(65),
        long(128),
        long(129),
        id.to_uppercase(),
        format!("{id}0"),
        id,
        "a b".to_owned(),
        "a\u{202e}b".to_owned(),
    ];
    names.into_iter().map(String::into_bytes).collect()
}
