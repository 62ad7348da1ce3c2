//! The metadata key in which a caller names its principal, and how the key is read (SPEC section 10).

use crate::status::RpcRefusal;
use crate::v1::RefusalReason;

/// The metadata key in which a caller names its principal to a server that does not check identities. Proves nothing
/// (SPEC section 10).
pub const PRINCIPAL_KEY: &str = "stickycas-principal";

/// The principal of a request: `values` are all values of its metadata under [`PRINCIPAL_KEY`], `None` for a value
/// that is not visible ASCII. A name has at most `max_bytes` bytes.
///
/// # Errors
/// NO_IDENTITY if there is no value, more than one, or one that is no name.
pub fn principal_from_metadata<'a>(
    mut values: impl Iterator<Item = Option<&'a str>>,
    max_bytes: usize,
) -> Result<&'a str, RpcRefusal> {
    let refuse = |why: String| RpcRefusal::new(RefusalReason::NoIdentity, why);
    let name = match (values.next(), values.next()) {
        (Some(name), None) => name,
        (None, _) => return Err(refuse(format!("name yourself in the metadata key {PRINCIPAL_KEY}"))),
        (Some(_), Some(_)) => return Err(refuse(format!("{PRINCIPAL_KEY} is given more than once"))),
    };
    let name = name.ok_or_else(|| refuse(format!("{PRINCIPAL_KEY} is not visible ASCII")))?;
    if name.is_empty() || name.len() > max_bytes {
        return Err(refuse(format!("{PRINCIPAL_KEY} has 1 to {max_bytes} bytes")));
    }
    Ok(name)
}
