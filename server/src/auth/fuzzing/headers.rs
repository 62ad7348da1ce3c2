//! The headers that name the principal of a request.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use stickycas_proto::principal::{PRINCIPAL_KEY, is_principal_name};

use crate::auth::authenticator::{bearer, from_metadata};
use crate::auth::roles::Roles;

/// A principal that is taken is named once and by a name, and a token is the one that was given.
pub(crate) fn identity_headers(headers: &HeaderMap) {
    let only = |name: &str| {
        let mut values = headers.get_all(name).iter();
        values.next().filter(|_| values.next().is_none()).map(HeaderValue::as_bytes)
    };
    let named = from_metadata(headers, &Roles::default()).ok();
    let expected = only(PRINCIPAL_KEY).filter(|name| is_principal_name(name));
    assert_eq!(named.as_ref().map(|identity| identity.principal.as_str().as_bytes()), expected);

    let expected = only(AUTHORIZATION.as_str());
    let expected = expected.filter(|value| value.to_ascii_lowercase().starts_with(b"bearer "));
    assert_eq!(bearer(headers).ok(), expected.map(|value| &value["bearer ".len()..]));
}
