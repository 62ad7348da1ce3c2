// The calls of one server, by @grpc/grpc-js. This file has not been tried: the checks of this repository have no npm, and use
// ../debian/node/http2.js in its place.

import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";
import protobuf from "protobufjs";

const includeDir = fileURLToPath(new URL("../../proto/", import.meta.url));
const objects = { longs: String, enums: String, defaults: true };
const services = protoLoader.loadSync(
  ["sticky_cas_service", "instance_service"].map(
    (name) => `stickycas/v1/${name}.proto`,
  ),
  { ...objects, includeDirs: [includeDir] },
);
const details = protobuf.loadSync([
  `${includeDir}google/rpc/status.proto`,
  `${includeDir}google/rpc/error_details.proto`,
]);

const options = {
  // A server that is paused or cut off closes nothing: only a ping without an answer tells.
  "grpc.keepalive_time_ms": 10_000,
  "grpc.keepalive_timeout_ms": 10_000,
  // By default a server that was killed would be tried again after minutes only.
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 500,
  // The answer of a read on Attach may be larger than the default of 4 MiB.
  "grpc.max_receive_message_length": -1,
};

/** @type {import("./cluster.js").Connect} */
export function connect(address, tls) {
  const credentials = tls
    ? grpc.credentials.createSsl(tls.ca, tls.key, tls.cert)
    : grpc.credentials.createInsecure();
  const client = new grpc.Client(address, credentials, options);

  /** The arguments with which all calls of a method begin. */
  function begin(service, method) {
    const { path, requestSerialize, responseDeserialize } =
      services[service][method];
    return [path, requestSerialize, responseDeserialize];
  }
  function metadataOf(entries) {
    const metadata = new grpc.Metadata();
    for (const [key, value] of Object.entries(entries)) {
      metadata.set(key, value);
    }
    return metadata;
  }
  return {
    unary: (service, method, request, metadata, timeout) =>
      new Promise((resolve, reject) => {
        const deadline = Date.now() + timeout;
        const done = (error, response) =>
          error ? reject(error) : resolve(response);
        client.makeUnaryRequest(
          ...begin(service, method),
          request,
          metadataOf(metadata),
          { deadline },
          done,
        );
      }),
    stream(service, method, metadata) {
      const stream = client.makeBidiStreamRequest(
        ...begin(service, method),
        metadataOf(metadata),
      );
      return stream.on("error", () => {}); // whoever reads from it is told
    },
    decode(type, bytes) {
      const message = details.lookupType(type);
      return message.toObject(message.decode(bytes), objects);
    },
    close: () => client.close(),
  };
}
