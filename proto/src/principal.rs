//! The metadata key in which a caller names its principal (SPEC section 10).

use crate::status::RpcRefusal;
use crate::v1::RefusalReason;

/// The metadata key in which a caller names its principal to a server that believes it. Proves nothing (SPEC
/// section 10).
pub const PRINCIPAL_KEY: &str = "stickycas-principal";

/// The principal that a caller names, to whoever believes it: all values that it gave under [`PRINCIPAL_KEY`],
/// `None` for one that is no text.
///
/// # Errors
/// NO_IDENTITY if it gave none or several, or one that is no name of at most so many bytes.
pub fn principal_from_metadata<'a>(
    mut given: impl Iterator<Item = Option<&'a str>>,
    longest: usize,
) -> Result<&'a str, RpcRefusal> {
    let refuse = |why: String| RpcRefusal::new(RefusalReason::NoIdentity, why);
    let name = match (given.next(), given.next()) {
        (Some(name), None) => name,
        (None, _) => return Err(refuse(format!("name yourself in the metadata key {PRINCIPAL_KEY}"))),
        (Some(_), Some(_)) => return Err(refuse(format!("{PRINCIPAL_KEY} is given more than once"))),
    };
    let name = name.ok_or_else(|| refuse(format!("{PRINCIPAL_KEY} is not visible ASCII")))?;
    if name.is_empty() || name.len() > longest {
        return Err(refuse(format!("{PRINCIPAL_KEY} has 1 to {longest} bytes")));
    }
    Ok(name)
}
