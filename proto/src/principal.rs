//! Names of principals, and the metadata key in which a caller gives its own (SPEC section 10).

use crate::status::RpcRefusal;
use crate::v1::RefusalReason;

/// The metadata key in which a caller names its principal to a server that does not check identities. Proves
/// nothing (SPEC section 10).
pub const PRINCIPAL_KEY: &str = "stickycas-principal";

/// The most bytes of a principal's name.
pub const MAX_PRINCIPAL_BYTES: usize = 128;
/// The grammar of the names of principals, for error messages.
pub const PRINCIPAL_GRAMMAR: &str = "1 to 128 letters, digits, '.', '_' or '-', and neither '.' nor '..'";

/// Whether this is the name of a principal: 1 to [`MAX_PRINCIPAL_BYTES`] bytes, each an ASCII letter, a
/// digit, `.`, `_` or `-`, and neither `.` nor `..`. So it can stand in a URI, in a file's name and in a line
/// of a log as it is. Names are compared byte by byte.
#[must_use]
pub fn is_principal_name(name: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_PRINCIPAL_BYTES).contains(&name.len())
        && name.iter().all(allowed)
        && !matches!(name, b"." | b"..")
}

/// The principal of a request: `values` are all values of its metadata under [`PRINCIPAL_KEY`], `None` for a
/// value that is not visible ASCII.
///
/// # Errors
/// NO_IDENTITY if there is no value, more than one, or one that is no name.
pub fn principal_from_metadata<'a>(
    mut values: impl Iterator<Item = Option<&'a str>>,
) -> Result<&'a str, RpcRefusal> {
    let refuse = |why: String| RpcRefusal::new(RefusalReason::NoIdentity, why);
    let name = match (values.next(), values.next()) {
        (Some(name), None) => name,
        (None, _) => return Err(refuse(format!("name yourself in the metadata key {PRINCIPAL_KEY}"))),
        (Some(_), Some(_)) => return Err(refuse(format!("{PRINCIPAL_KEY} is given more than once"))),
    };
    let name = name.filter(|name| is_principal_name(name.as_bytes()));
    name.ok_or_else(|| refuse(format!("{PRINCIPAL_KEY} is no name of a principal: give {PRINCIPAL_GRAMMAR}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_a_closed_alphabet() {
        let longest = "x".repeat(MAX_PRINCIPAL_BYTES);
        for name in ["a", "p-1", "Ann.B_9", "...", "-", &longest] {
            assert!(is_principal_name(name.as_bytes()), "{name}");
        }
        let too_long = "x".repeat(MAX_PRINCIPAL_BYTES + 1);
        for other in ["", ".", "..", "a b", "a/b", "a%20b", "\u{e9}", "a\n", "a\0", "a\u{202e}b", &too_long] {
            assert!(!is_principal_name(other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn a_request_names_one_principal() {
        let named = |values: &[Option<&'static str>]| {
            principal_from_metadata(values.iter().copied()).map_err(|refused| refused.message)
        };
        assert_eq!(named(&[Some("ann")]), Ok("ann"));
        assert_eq!(named(&[]), Err("name yourself in the metadata key stickycas-principal".to_owned()));
        let twice = "stickycas-principal is given more than once".to_owned();
        assert_eq!(named(&[Some("ann"), Some("ann")]), Err(twice));
        for other in [None, Some(""), Some("ann smith")] {
            let refused = named(&[other]).unwrap_err();
            assert_eq!(
                refused,
                format!("stickycas-principal is no name of a principal: give {PRINCIPAL_GRAMMAR}")
            );
        }
    }
}
