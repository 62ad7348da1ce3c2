//! Files of messages (`stickycas/log/v1/dump.proto`): each stands behind its length, as protobuf writes it
//! before embedded messages (a varint). prost writes them (`encode_length_delimited`); it reads them from
//! memory only, and this from a file of any size.

use std::io::{self, Read};

/// The next message, encoded; `None` at the end of the file. `longest`: bytes of the longest message that is
/// read.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] if the file ends within a message, [`io::ErrorKind::InvalidData`] if a
/// message is longer, and the errors of reading.
pub fn read_message(from: &mut impl Read, longest: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(length) = read_length(from)? else { return Ok(None) };
    if length > longest {
        return Err(invalid("a message is too long"));
    }
    // Grows with what is there, whatever length a damaged file claims.
    let mut message = Vec::new();
    if from.take(length).read_to_end(&mut message)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(message))
}

fn read_length(from: &mut impl Read) -> io::Result<Option<u64>> {
    let mut length = 0_u64;
    for shift in (0..64).step_by(7) {
        let mut byte = [0];
        if from.read(&mut byte)? == 0 {
            return if shift == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        length |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] & 0x80 == 0 {
            return Ok(Some(length));
        }
    }
    Err(invalid("a length has too many bytes"))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn messages_are_read_one_by_one_to_the_end() {
        let messages = [String::new(), "a".to_owned(), "b".repeat(300)];
        let file: Vec<u8> = messages.iter().flat_map(String::encode_length_delimited_to_vec).collect();
        let mut from = file.as_slice();
        for message in &messages {
            assert_eq!(read_message(&mut from, 1_000).unwrap(), Some(message.encode_to_vec()));
        }
        assert_eq!(read_message(&mut from, 1_000).unwrap(), None);
        let kind = |mut file: &[u8], longest| {
            loop {
                match read_message(&mut file, longest) {
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(error) => return Some(error.kind()),
                }
            }
        };
        assert_eq!(kind(&file, 302), Some(io::ErrorKind::InvalidData));
        for end in 0..file.len() {
            let at_an_end = [0, 1, 5].contains(&end);
            assert_eq!(
                kind(&file[..end], 1_000),
                (!at_an_end).then_some(io::ErrorKind::UnexpectedEof),
                "{end}"
            );
        }
        assert_eq!(kind(&[0xff; 20], u64::MAX), Some(io::ErrorKind::InvalidData));
    }
}
