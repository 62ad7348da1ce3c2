#!/usr/bin/env python3
"""Lets `conformance.py client` judge a program that has the command line of the examples."""

import json
import subprocess
import sys


def main() -> None:
    """Reads the task from standard input, runs the program, and writes its result to standard output."""
    task = json.loads(sys.stdin.readline())
    command = [*sys.argv[1:], "propose", "--server", task["server"], "--principal", task["principal"]]
    command += ["--instance", task["instance"], "--value", task["value"]]
    if task["transport"] == "unary":
        command.append("--unary")
    done = subprocess.run(command, capture_output=True, check=False)
    sys.stderr.buffer.write(done.stderr)
    lines = done.stdout.decode().splitlines()
    if done.returncode == 0 and len(lines) == 1 and lines[0].startswith("decided "):
        print(json.dumps({"decided": lines[0].removeprefix("decided ")}))
        return
    said = done.stderr.decode(errors="replace").strip().splitlines()
    errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
    if done.returncode == 1 and not lines and errors:
        print(json.dumps({"error": errors[-1]}))
    else:
        sys.exit(f"exit code {done.returncode}, {lines!r} on standard output and no line `error: ...`")


if __name__ == "__main__":
    main()
