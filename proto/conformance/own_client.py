#!/usr/bin/env python3
"""Lets `conformance.py client` judge the client in Rust, which has Attach alone. STICKYCAS_PROGRAMS is the folder of stickycas-client."""

import json
import os
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Reads the task from standard input, runs the client, and writes its result to standard output."""
    task = json.loads(sys.stdin.readline())
    command = [str(Path(os.environ["STICKYCAS_PROGRAMS"]) / "stickycas-client"), "propose", "--json"]
    command += [f"--server=http://{server}" for server in task["server"].split(",")]
    command += [
        f"--principal={task['principal']}",
        f"--instance={task['instance']}",
        f"--value={task['value']}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        # It has not come to play.
        print(json.dumps({"error": done.stderr.strip()}))
        return
    record = json.loads(done.stdout)
    if "decision" in record:
        print(json.dumps({"decided": record["decision"]}))
    else:
        error = record.get("error", {})
        print(json.dumps({"error": error.get("reason") or error.get("message") or str(record["ended"])}))


if __name__ == "__main__":
    main()
