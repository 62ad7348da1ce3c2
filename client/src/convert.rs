//! The arguments of operations for an instance and for a value.

use stickycas_model::types::Value;
use stickycas_proto::names::{InstanceId, InstanceRef};

use crate::error::Error;

/// An instance, by its id or by its name: an [`InstanceId`], an [`InstanceRef`], or the text of an id or of a
/// name.
///
/// Accesses carry ids (SPEC F11). An operation that is given a name asks the server for the id first, which
/// is one more call; look it up once with [`Client::find`](crate::Client::find) to save that.
pub trait IntoInstance {
    /// The instance. No name looks like an id, so a text means one of the two.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the text is neither an id nor a name.
    fn into_instance(self) -> Result<InstanceRef, Error>;
}

/// The value of these bytes.
///
/// A value has one byte or more (SPEC P3). The most bytes that it may have is a parameter of the instance, so
/// that limit is checked where the instance is known.
///
/// # Errors
/// [`Error::InvalidArgument`] if there is no byte.
pub(crate) fn value_of(bytes: impl AsRef<[u8]>) -> Result<Value, Error> {
    Value::new(bytes.as_ref())
        .ok_or_else(|| Error::InvalidArgument("empty value: give one byte or more".to_owned()))
}

impl IntoInstance for &str {
    fn into_instance(self) -> Result<InstanceRef, Error> {
        if let Ok(id) = self.parse() {
            return Ok(InstanceRef::Id(id));
        }
        self.parse().map(InstanceRef::Name).map_err(|_| {
            Error::InvalidArgument(format!(
                "instance {self:?}: give its id (32 lowercase hex digits) or its name (1 to 64 letters, digits, \
                 '.', '_' or '-')"
            ))
        })
    }
}

impl IntoInstance for &String {
    fn into_instance(self) -> Result<InstanceRef, Error> {
        self.as_str().into_instance()
    }
}

impl IntoInstance for InstanceRef {
    fn into_instance(self) -> Result<InstanceRef, Error> {
        Ok(self)
    }
}

impl IntoInstance for &InstanceRef {
    fn into_instance(self) -> Result<InstanceRef, Error> {
        Ok(self.clone())
    }
}

impl IntoInstance for InstanceId {
    fn into_instance(self) -> Result<InstanceRef, Error> {
        Ok(InstanceRef::Id(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_an_id_if_it_looks_like_one() {
        let id = InstanceId::new(7);
        assert_eq!((&id.to_string()).into_instance().unwrap(), InstanceRef::Id(id));
        assert_eq!("demo".into_instance().unwrap(), InstanceRef::Name("demo".parse().unwrap()));
        let error = "no/name".into_instance().unwrap_err().to_string();
        assert!(error.starts_with("instance \"no/name\": give its id"), "{error}");
    }

    #[test]
    fn text_and_bytes_are_values_unless_empty() {
        let tea = Value::new(b"tea").unwrap();
        for value in [value_of("tea"), value_of(b"tea"), value_of(String::from("tea")), value_of(&tea)] {
            assert_eq!(value.unwrap(), tea);
        }
        assert_eq!(value_of("0x00").unwrap().as_bytes(), b"0x00", "text is taken as it is");
        assert_eq!(value_of("").unwrap_err().to_string(), "empty value: give one byte or more");
    }
}
