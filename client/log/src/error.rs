//! [`LogError`].

/// The failure of an operation.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// A call failed, or an argument is wrong.
    #[error(transparent)]
    Client(#[from] stickycas_client::Error),
    /// The server does not keep this instance any more.
    #[error(
        "{0} is forgotten: begin with a later one; if there is none, the series is lost: begin another one"
    )]
    Forgotten(String),
    /// The series has not come so far: for who has read earlier ones, its server had forgotten all of it, and
    /// its coordinator has begun again.
    #[error(
        "{newest} is the newest one, and not even the one before {wanted} is there: give a lower number; if you have read \
         higher ones, the series has begun again: begin with number 1"
    )]
    BegunAgain {
        /// The name of the newest instance.
        newest: String,
        /// The name of the one that was asked for.
        wanted: String,
    },
    /// An instance has a name of the series, but another creator, roster or parameters than those before.
    #[error("{name}, created by {creator}, is not of the series that was seen before: name another one")]
    Foreign {
        /// Its name.
        name: String,
        /// Its creator.
        creator: String,
    },
    /// Another life of the same member acts in this instance: there may be one at a time.
    #[error("another life of the same member acts in {0}: only one at a time may act")]
    Replaced(String),
    /// No instance of this series is kept: there was none, or it is forgotten.
    #[error("nothing of {0} is kept: either its coordinator has created nothing, or all of it is forgotten")]
    Nothing(String),
    /// The driver of the member has ended.
    #[error("the driver of the member has ended: its result says why")]
    Ended,
}
