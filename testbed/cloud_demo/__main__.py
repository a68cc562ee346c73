"""The story of `tradewind demo --cloud`: each command that a user types, what it prints, and what happens meanwhile."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from testbed.cloud_demo.stage import RATE, SINK, SOURCE, CloudStage, cloud_stage
from testbed.drive import Event, Finished, MissingBinary, Running
from testbed.kubelab.install import lab_not_built
from testbed.kubelab.lab import LabError
from testbed.servers import InstallError, ServerError
from tradewind.errors import TradewindError
from tradewind.gateway.binary import find_gateway
from tradewind.model.units import format_bytes

#: Default volume. At the limited rate it takes a quarter of a minute.
DEFAULT_BYTES = 40_000_000
#: The relay's power is cut when this fraction of the bytes has arrived.
KILL_AT = 0.2
COLUMNS = 110


class StoryFailed(Exception):
    """A step had another outcome than the story says. The message is one line."""


class Story:
    """Prints numbered steps, commands and their output, unless quiet."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._steps = 0

    def step(self, text: str) -> None:
        """Print the next step."""
        self._steps += 1
        self._print(textwrap.wrap(f"{self._steps}. {text}", COLUMNS, subsequent_indent="   ", break_on_hyphens=False))

    def typed(self, words: Sequence[str]) -> None:
        """Print a command as a user would type it, with each option on the line of its value."""
        lines = ["   $ tradewind"]
        for option in shlex.join(words).replace(" -", "\0-").split("\0"):
            if len(lines[-1]) + len(option) > COLUMNS:
                lines.append("      ")
            lines[-1] += f" {option}"
        self._print(lines, " \\")

    def output(self, text: str) -> None:
        """Print what a command has printed."""
        self._print([f"   {line}" for line in text.splitlines() if line])

    def _print(self, lines: list[str], between: str = "") -> None:
        if not self._quiet:
            print(f"{between}\n".join(lines), file=sys.stderr, flush=True)


def tell(stage: CloudStage, story: Story, volume_bytes: int, why_no_cluster: str | None) -> None:
    """Run the story. Raises StoryFailed."""
    story.step(
        "Clouds: stand-ins of AWS and Google Cloud on this host. Only their APIs are emulated: each machine that they"
        " start really runs its user data as root, in a network namespace, and moves bytes over TCP."
    )
    story.output(
        "Kubernetes: a real cluster of two nodes, which runs the relay."
        if why_no_cluster is None
        else f"Kubernetes is left out: {why_no_cluster}."
    )
    digests = stage.write_files(volume_bytes)
    story.step(
        f"{len(digests)} objects, {format_bytes(volume_bytes)}, go from an S3 bucket in {SOURCE} to a GCS bucket in"
        f" {SINK}. The endpoint options name the stand-ins of the stores. First, the plan:"
    )
    _run(stage, story, *stage.words, "--dry-run", with_data=False)
    story.step(f"The transfer. Its rate is limited to {RATE}, so that you can watch it:")
    story.typed(stage.words)
    running = stage.command.start(*stage.words)
    running.wait_for_bytes(int(volume_bytes * KILL_AT))
    _run(stage, story, "fleet", "list", "--everywhere")
    story.step(f"The machine in {stage.relay} is killed, without warning:")
    stage.kill_relay()
    notices = _finish(running)
    story.output("\n".join(f"note: {message}" for message in notices))
    if not any("takes its place" in message for message in notices):
        raise StoryFailed("the transfer ended before the relay was replaced: use more data, such as --size 80MB")
    story.step("The job, with the times of the machines' start, the proof, and the cost:")
    _run(stage, story, "jobs", "show", str(stage.command.jobs()[0]["id"]))
    story.step("A sweep looks for machines, disks and firewalls of the fleet by their tags, in all clouds:")
    swept = _run(stage, story, "fleet", "sweep")
    if swept.stdout.splitlines()[-1:] != ["nothing is left"]:
        raise StoryFailed(f"not everything has ended: {swept.stdout.strip()}")
    if billed := stage.billed_in_the_end():
        raise StoryFailed(f"the clouds still bill {', '.join(billed)}")
    if different := stage.differences(digests):
        raise StoryFailed(f"{len(different)} of {len(digests)} objects differ, such as {different[0]}")
    story.step(
        f"Compared without Tradewind: all {len(digests)} objects in the GCS bucket have the SHA-256 of their originals,"
        " and the clouds bill no machine."
    )


def _run(stage: CloudStage, story: Story, *words: str, with_data: bool = True) -> Finished:
    """Show a command, run it, and show its messages, and its data. Raises StoryFailed."""
    story.typed(words)
    done = stage.command.run(*words)
    story.output(done.stderr + (done.stdout if with_data else ""))
    if done.code != 0:
        raise StoryFailed(f"tradewind {words[0]} exited with {done.code}")
    return done


def _finish(running: Running) -> list[str]:
    """Wait for the end of the transfer. Return its messages; raise StoryFailed unless it succeeded."""
    done = running.finish()
    if done.code != 0:
        raise StoryFailed(f"the transfer exited with {done.code}: {done.stderr.strip()[:1000]}")
    return [_message(event) for event in done.events if event["event"] == "notice"]


def _message(event: Event) -> str:
    return str(event["message"])


def main() -> int:
    """Run the story in a temporary folder. Return the exit code."""
    parser = argparse.ArgumentParser(prog="tradewind demo --cloud")
    parser.add_argument("--bytes", type=int, default=DEFAULT_BYTES)
    parser.add_argument("--gateway", help="the gateway program that machines boot")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--no-kubernetes", action="store_true", help="leave the cluster out, even if it is built")
    args = parser.parse_args()
    story = Story(args.quiet)
    folder = Path(tempfile.mkdtemp(prefix="tradewind-demo-"))
    try:
        gateway = str(Path(args.gateway or find_gateway()).resolve())
        why_no_cluster = "--no-kubernetes" if args.no_kubernetes else lab_not_built()
        with cloud_stage(folder, gateway, with_cluster=why_no_cluster is None) as stage:
            tell(stage, story, args.bytes, why_no_cluster)
    except KeyboardInterrupt:
        return 130
    except TradewindError as error:
        print(f"error: {error}", *([f"hint: {error.hint}"] if error.hint else []), sep="\n", file=sys.stderr)
        return error.exit_code
    # The driver of the command reports what it did not find as an AssertionError.
    except (StoryFailed, InstallError, ServerError, LabError, MissingBinary, AssertionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
