//! Errors of refused messages.

use stickycas_model::params::{ParamsError, ValueError};

/// The error of a refused message. Fields have the names of the .proto files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A required field is absent.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A number that counts from 1 is 0.
    #[error("{0} is 0: it counts from 1")]
    Zero(&'static str),
    /// An enum field holds no value of the enum, or UNSPECIFIED where one is required.
    #[error("{field} = {value} has no meaning")]
    UnknownEnum {
        /// The field.
        field: &'static str,
        /// Its content.
        value: i32,
    },
    /// A duration is negative or not normalised.
    #[error("{0} is negative or not a duration")]
    Duration(&'static str),
    /// A field does not fit another one of its message.
    #[error("{field} {why}")]
    Contradiction {
        /// The field.
        field: &'static str,
        /// The error of the field.
        why: &'static str,
    },
    /// Bytes are not a value of the instance (P3).
    #[error("{field}: {error}")]
    Value {
        /// The field.
        field: &'static str,
        /// The error of the bytes.
        error: ValueError,
    },
    /// The text is not an instance id.
    #[error("instance_id: give 32 lowercase hex digits")]
    InstanceId,
    /// The text is not an instance name.
    #[error("name: give 1 to 64 letters, digits, '.', '_' or '-', and not 32 hex digits")]
    InstanceName,
    /// A parameter is out of its range (P4).
    #[error("parameters: {0}")]
    Params(#[from] ParamsError),
}
