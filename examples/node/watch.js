// The events of an instance, from the first one to its end.

/**
 * Prints what happens at an instance.
 * @param {import("./cluster.js").Cluster} cluster
 * @param {string} name The name or id of the instance.
 */
export async function watch(cluster, name) {
  const { instanceId } = (await cluster.get(name)).instance;
  let fromPhase = 0; // the last phase of which an event came: a new stream goes on there
  let next = 0; // the index of the event that is due
  await cluster.repeat(async () => {
    const { stream, messages } = cluster.open("InstanceService", "Watch");
    try {
      stream.write({ instanceId, fromPhase });
      stream.end();
      for await (const { events } of messages) {
        cluster.noteAnswer();
        for (const event of events?.events ?? []) {
          const index = Number(event.index);
          if (index < next) continue; // it came on an earlier stream
          if (index > next)
            throw new Error(`gap: event ${index} came where ${next} was due`);
          next++;
          const { stepped, added, decided } = event;
          if (stepped) fromPhase = stepped.phase;
          if (added)
            console.log(
              `entry ${added.position} ${added.process} ${added.value}`,
            );
          if (decided)
            console.log(`decided ${decided.process} ${decided.value}`);
          const end = ["finished", "closed"].find((name) => event[name]);
          if (end) return console.log(end);
        }
      }
    } finally {
      stream.cancel();
    }
  });
}
