#!/usr/bin/env node
import { connect } from "./grpc.js";
import { main } from "./main.js";

process.exitCode = await main(connect, process.argv.slice(2));
