//! Decoders of this folder for [`crate::fuzzing`].

use std::collections::HashSet;
use std::sync::LazyLock;

use prost::Message as _;
use stickycas_proto::convert::params::params_from_wire;
use stickycas_proto::principal::is_principal_name;
use stickycas_proto::v1;

use super::instances::create_spec;
use super::page_token::PageTokens;
use crate::limits::Limits;

/// A page token opens as it was sealed, for whom it was sealed, and no other one does. The first byte says
/// whether a good token is changed by the others, or these are one.
pub fn page_token(bytes: &[u8]) {
    static TOKENS: LazyLock<PageTokens> = LazyLock::new(PageTokens::new);
    let Some((kind, rest)) = bytes.split_first() else { return };
    let place = *b"where a page ends";
    let good = TOKENS.seal(&place, "ann").expect("there are random numbers");
    let open = |token: &str, caller| TOKENS.open(token, caller, |bytes| Some(bytes.to_vec())).ok();
    if kind % 2 == 0 {
        let Ok(text) = std::str::from_utf8(rest) else { return };
        assert_eq!(open(text, "ann"), None, "nobody has sealed {text:?}");
        return;
    }
    let mut token = good.clone().into_bytes();
    for change in rest.chunks_exact(2) {
        let place = usize::from(change[0]) % token.len();
        token[place] = token[place].wrapping_add(change[1]);
    }
    let Ok(token) = String::from_utf8(token) else { return };
    // The digits of a token may be of either case.
    let is_good = token.eq_ignore_ascii_case(&good);
    assert_eq!(open(&token, "ann"), is_good.then(|| place.to_vec()), "{token} of {good}");
    assert_eq!(open(&token, "bob"), None);
}

/// The parameters of a Create are told as they were taken.
pub fn create_request(bytes: &[u8]) {
    let Ok(request) = v1::CreateRequest::decode(bytes) else { return };
    let roster = request.roster.clone();
    let Ok(spec) = create_spec(request, &Limits::default()) else { return };
    assert_eq!(spec.roster, roster);
    assert_eq!(roster.len(), spec.params.processes() as usize);
    assert!(roster.iter().all(|name| is_principal_name(name.as_bytes())), "{roster:?}");
    assert_eq!(roster.iter().collect::<HashSet<_>>().len(), roster.len(), "{roster:?}");
    let told = v1::Parameters::from(&spec.params);
    assert_eq!(params_from_wire(&told).expect("the server has told them"), spec.params);
}
