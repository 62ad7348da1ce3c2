// The command line.

import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { Cluster } from "./cluster.js";
import { propose } from "./process.js";
import { watch } from "./watch.js";

const USAGE = `usage: stickycas-node COMMAND --server HOST:PORT[,HOST:PORT...] [--credentials DIR] [--principal NAME] [--give-up-after SECONDS]
  propose --instance NAME_OR_ID --value TEXT [--unary]
  create --name NAME --processes N --warp-size P --read-size R --roster A,B,C [--append-rounds Q] [--patience SECONDS]
  watch --instance NAME_OR_ID`;

/** What each command does, and which flags it needs. */
const COMMANDS = {
  propose: {
    required: ["instance", "value"],
    optional: { unary: { type: "boolean" } },
    async run(cluster, { instance, value, unary = false }) {
      console.log(
        `decided ${await propose(cluster, instance, Buffer.from(value), unary)}`,
      );
    },
  },
  create: {
    required: ["name", "processes", "warp-size", "read-size", "roster"],
    optional: {
      "append-rounds": { type: "string" },
      patience: { type: "string" },
    },
    async run(cluster, flags) {
      const patience = flags.patience && {
        seconds: Math.trunc(flags.patience),
        nanos: Math.round((flags.patience % 1) * 1e9),
      };
      const { instance } = await cluster.call("InstanceService", "Create", {
        name: flags.name,
        roster: flags.roster.split(","),
        parameters: {
          processes: Number(flags.processes),
          warpSize: Number(flags["warp-size"]),
          readSize: Number(flags["read-size"]),
          appendRounds: Number(flags["append-rounds"] ?? 1),
          patience,
        },
      });
      console.log(instance.instanceId);
    },
  },
  watch: {
    required: ["instance"],
    optional: {},
    run: (cluster, { instance }) => watch(cluster, instance),
  },
};
const NUMBERS = [
  "processes",
  "warp-size",
  "read-size",
  "append-rounds",
  "patience",
  "give-up-after",
];

/** Reads the arguments; throws an error that says what is wrong. */
function parse(args) {
  const command = COMMANDS[args[0]];
  if (!command) throw new Error(`no such command\n${USAGE}`);
  const names = [
    "server",
    "credentials",
    "principal",
    "give-up-after",
    ...command.required,
  ];
  const texts = Object.fromEntries(
    names.map((name) => [name, { type: "string" }]),
  );
  const { values } = parseArgs({
    args: args.slice(1),
    options: { ...texts, ...command.optional },
  });
  const identity = values.credentials === undefined ? ["principal"] : [];
  const missing = ["server", ...identity, ...command.required].find(
    (name) => !values[name],
  );
  if (missing) throw new Error(`--${missing} is missing`);
  const wrong = NUMBERS.find(
    (name) => values[name] !== undefined && !(Number(values[name]) >= 0),
  );
  if (wrong) throw new Error(`--${wrong} is no number`);
  return { command, values };
}

/** What the folder of credentials holds: for TLS, and the file of the token, which is read again at each call. */
function readCredentials(folder) {
  const file = (name) => path.join(folder, name);
  const tls = { ca: readFileSync(file("ca.crt")) };
  if (existsSync(file("token"))) {
    readFileSync(file("token"));
    return { tls, token: file("token") };
  }
  return {
    tls: {
      ...tls,
      cert: readFileSync(file("tls.crt")),
      key: readFileSync(file("tls.key")),
    },
  };
}

/**
 * @param {import("./cluster.js").Connect} connect
 * @param {string[]} args
 * @returns {Promise<number>} The exit code: 0 done, 1 refused or given up, 2 wrong usage or unusable credentials.
 */
export async function main(connect, args) {
  let parsed;
  let credentials = {};
  try {
    parsed = parse(args);
    if (parsed.values.credentials)
      credentials = readCredentials(parsed.values.credentials);
  } catch (error) {
    console.error(`error: ${error.message}`);
    return 2;
  }
  const { command, values } = parsed;
  const { tls, token } = credentials;
  const addresses = values.server
    .split(",")
    .map((server) => server.replace(/^https?:\/\//, ""));
  const identify = () => {
    if (token)
      return { authorization: `Bearer ${readFileSync(token, "utf8").trim()}` };
    return tls ? {} : { "stickycas-principal": values.principal };
  };
  const giveUpAfter = Number(values["give-up-after"] ?? 30) * 1000;
  const cluster = new Cluster(
    addresses,
    (address) => connect(address, tls),
    identify,
    giveUpAfter,
  );
  try {
    await command.run(cluster, values);
    return 0;
  } catch (error) {
    console.error(`error: ${error.message}`);
    return 1;
  } finally {
    cluster.close();
  }
}
