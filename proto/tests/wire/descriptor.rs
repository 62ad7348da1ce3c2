//! The embedded descriptor set, which reflection serves. CI compares it with the .proto files.

use prost::Message as _;
use prost_types::FileDescriptorSet;

fn embedded() -> FileDescriptorSet {
    FileDescriptorSet::decode(stickycas_proto::FILE_DESCRIPTOR_SET).expect("the build wrote it")
}

#[test]
fn the_descriptor_set_holds_the_services_and_their_calls() {
    let calls: Vec<(String, Vec<String>)> = embedded()
        .file
        .iter()
        .flat_map(|file| &file.service)
        .map(|service| {
            let methods = service.method.iter().map(|method| method.name().to_owned());
            (service.name().to_owned(), methods.collect())
        })
        .collect();
    let expected = [
        ("InstanceService", &["Create", "Get", "List", "Watch", "Close"][..]),
        ("JudgeService", &["Report"]),
        ("ServerService", &["GetCounts", "GetCluster"]),
        ("StickyCasService", &["Append", "Read", "Decide", "Attach"]),
    ];
    let expected: Vec<(String, Vec<String>)> = expected
        .into_iter()
        .map(|(service, methods)| (service.to_owned(), methods.iter().map(ToString::to_string).collect()))
        .collect();
    assert_eq!(calls, expected);
}

#[test]
fn the_descriptor_set_holds_the_imports_that_reflection_needs() {
    let files: Vec<String> = embedded().file.iter().map(|file| file.name().to_owned()).collect();
    for import in [
        "google/protobuf/duration.proto",
        "google/protobuf/timestamp.proto",
        "google/rpc/error_details.proto",
        "google/rpc/status.proto",
    ] {
        assert!(files.iter().any(|file| file == import), "{import} is not in {files:?}");
    }
}
