//! Events and parameters read back as they were written.

use proptest::prelude::*;
use prost::Message as _;
use stickycas_model::types::Seed;
use stickycas_proto::convert::history::{event_from_wire, event_to_wire};
use stickycas_proto::convert::params::spec_from_wire;
use stickycas_proto::v1;

proptest! {
    #[test]
    fn every_event_arrives_as_it_was(index: u64, recorded in crate::strategies::recorded()) {
        let bytes = event_to_wire(index, &recorded).encode_to_vec();
        let arrived = v1::Event::decode(bytes.as_slice()).expect("we encoded it");
        prop_assert_eq!(event_from_wire(&arrived), Ok((index, recorded)));
    }

    #[test]
    fn all_parameters_arrive_as_they_were(spec in crate::strategies::params_spec()) {
        let bytes = v1::Parameters::from(&spec).encode_to_vec();
        let arrived = v1::Parameters::decode(bytes.as_slice()).expect("we encoded it");
        let drawn = Seed::new(!spec.seed.get());
        prop_assert_eq!(spec_from_wire(&arrived, drawn), Ok(spec));
    }
}
