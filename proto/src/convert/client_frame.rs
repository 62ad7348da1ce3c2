//! A frame of a client on Attach, as the server takes it.

use stickycas_model::process::RawOp;
use stickycas_model::types::RawValue;

use crate::names::InstanceId;
use crate::v1;
use crate::v1::client_frame::Frame;

/// One frame of a client. Its fields are decoded and not yet checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodedFrame {
    /// Performs an access.
    Access {
        /// The channel of the instance.
        channel: u32,
        /// The access number; 0 is none.
        number: u64,
        /// The operation; `None` if it is absent or not known.
        op: Option<RawOp>,
    },
    /// Opens an instance.
    Hello {
        /// The channel that the instance is to have.
        channel: u32,
        /// The instance; `None` if the text is no id.
        instance: Option<InstanceId>,
        /// Identifies one life of the client; 0 if the client gives none.
        incarnation: u64,
    },
    /// Reports a decision.
    Decision {
        /// The channel of the instance.
        channel: u32,
        /// The decision.
        value: RawValue,
    },
    /// Empty, or of a kind that is not known.
    Unknown,
}

impl From<v1::ClientFrame> for DecodedFrame {
    fn from(frame: v1::ClientFrame) -> Self {
        match frame.frame {
            Some(Frame::Access(v1::Access { channel, number, op })) => {
                Self::Access { channel, number, op: op.map(RawOp::from) }
            }
            Some(Frame::Hello(v1::Hello { channel, instance_id, incarnation })) => {
                Self::Hello { channel, instance: instance_id.parse().ok(), incarnation }
            }
            Some(Frame::Decision(v1::Decision { channel, value })) => {
                Self::Decision { channel, value: RawValue::new(&value) }
            }
            None => Self::Unknown,
        }
    }
}
