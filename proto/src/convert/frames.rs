//! Each kind of frame as a frame of Attach. Which kinds the generated types box is known here only.

use crate::v1::{
    Access, Answer, ClientFrame, Decided, Decision, Hello, Refusal, Replaced, ServerFrame, Welcome,
    client_frame, server_frame,
};

macro_rules! client_frame {
    ($($kind:ident)+) => {
        $(impl From<$kind> for ClientFrame {
            fn from(frame: $kind) -> Self {
                Self { frame: Some(client_frame::Frame::$kind(frame)) }
            }
        })+
    };
}

macro_rules! server_frame {
    ($($kind:ident)+) => {
        $(impl From<$kind> for ServerFrame {
            fn from(frame: $kind) -> Self {
                Self { frame: Some(server_frame::Frame::$kind(frame.into())) }
            }
        })+
    };
}

client_frame! { Access Hello Decision }
server_frame! { Answer Welcome Refusal Decided Replaced }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rare_frame_makes_every_frame_large() {
        assert!(size_of::<ServerFrame>() <= size_of::<Answer>() + 16, "{}", size_of::<ServerFrame>());
        assert!(size_of::<ClientFrame>() <= size_of::<Access>() + 16, "{}", size_of::<ClientFrame>());
    }
}
