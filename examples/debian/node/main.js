// Runs ../../node without a library for gRPC. The first argument is the descriptor set that build-node has made.

import { readFileSync } from "node:fs";
import { main } from "../../node/main.js";
import { transportOf } from "./http2.js";

const [descriptorSet, ...args] = process.argv.slice(2);
process.exitCode = await main(transportOf(readFileSync(descriptorSet)), args);
