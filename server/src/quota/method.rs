//! The methods whose calls are counted apart. Those of health and of reflection are one kind each, and so are
//! names of methods that do not exist.

named_values! {
    /// A method of our services, or another service.
    Method {
        Append = "Append",
        Read = "Read",
        Decide = "Decide",
        Attach = "Attach",
        Create = "Create",
        Get = "Get",
        List = "List",
        Watch = "Watch",
        Close = "Close",
        GetCounts = "GetCounts",
        GetCluster = "GetCluster",
        Health = "health",
        Reflection = "reflection",
        Unknown = "unknown",
    }
}

impl Method {
    /// The method of this name.
    pub(crate) fn from_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|method| method.name() == name).unwrap_or(Self::Unknown)
    }

    /// Whether it is a method of ours with one response.
    pub(crate) const fn is_unary(self) -> bool {
        match self {
            Self::Attach | Self::Watch | Self::Health | Self::Reflection | Self::Unknown => false,
            Self::Append
            | Self::Read
            | Self::Decide
            | Self::Create
            | Self::Get
            | Self::List
            | Self::Close
            | Self::GetCounts
            | Self::GetCluster => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_found_by_its_name_and_no_other_is() {
        for (index, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!((Method::from_name(method.name()), method as usize), (method, index));
        }
        for other in ["", "append", "Appendix", "x\u{1b}[31m"] {
            assert_eq!(Method::from_name(other), Method::Unknown);
        }
    }

    #[test]
    fn every_method_of_the_schema_is_counted_apart() {
        use prost::Message as _;
        let set = prost_types::FileDescriptorSet::decode(stickycas_proto::FILE_DESCRIPTOR_SET).unwrap();
        let services =
            set.file.iter().filter(|file| file.package() == "stickycas.v1").flat_map(|file| &file.service);
        let served = ["StickyCasService", "InstanceService", "ServerService"];
        let methods =
            services.filter(|service| served.contains(&service.name())).flat_map(|service| &service.method);
        let mut count = 0;
        for method in methods {
            assert_ne!(Method::from_name(method.name()), Method::Unknown, "{}", method.name());
            count += 1;
        }
        assert_eq!(count, Method::ALL.len() - 3);
    }
}
