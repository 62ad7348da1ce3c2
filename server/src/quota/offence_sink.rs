//! Where the offences of a principal are filed.

use std::fmt::Debug;

use stickycas_model::history::Offence;

/// An instance, as an account knows it: the record of the instance takes the offence (B2).
pub(crate) trait OffenceSink: Debug + Send + Sync {
    /// Files an offence of a process of the instance.
    fn file_offence(&self, offence: Offence);
}
