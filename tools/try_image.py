"""Builds docker/Dockerfile.cpu without Docker, starts the image, asks it, stops it, removes everything.

    python -m tools.try_image              # as root, on Debian or Ubuntu with debootstrap; some minutes, 6 GB
    python -m tools.try_image --dry-run    # the steps that would be run; needs no right and no program

Every RUN, COPY, ENV, WORKDIR and USER of the file is carried out in a clean root (debootstrap and chroot),
pip reaching its packages as it does on this machine. The server then runs as the image's user, with
processes, mounts and a network of its own. It is asked by `generate_stream`, must not let a stranger unload a
model, and must finish a stream that is open when it is told to end. Exit status 2: this machine cannot do it,
with what is missing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.image.build import Build, BuildError, Image
from tools.image.clean_root import missing
from tools.image.dockerfile import Dockerfile, DockerfileError, parsed
from tools.image.pip_settings import pip_settings
from tools.image.trial import END_S_MAX, UNLOAD, Trial, TrialError, events, first_line, started, text_of

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = ROOT / "docker" / "Dockerfile.cpu"
PROMPT = "turn lift fold push spin flip roll bend turn lift fold push 42"
FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class Findings:
    """What one trial measured."""

    build_s: float
    image_mib: int
    ready_s: float
    answer: str
    events: int
    drained_events: int
    """Of the stream that was open when the end was asked for; it came whole."""
    stop_s: float
    exit_status: int


def tried(options: argparse.Namespace, folder: Path, file: Dockerfile) -> Findings:
    """BuildError, TrialError: what went wrong."""
    begun_at = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun_at:6.1f} s  {text}", file=sys.stderr, flush=True)

    build = Build(ROOT, folder, arguments_of(options), pip_settings(), say, options.mirror)
    image = build.run(file)
    build_s = time.monotonic() - begun_at
    say("[trial] starting " + " ".join((*image.settings.entrypoint, *image.settings.command)))
    with started(image, folder / "server.log") as trial:
        return _asked(trial, build_s, say_size(image))


def _asked(trial: Trial, build_s: float, image_mib: int) -> Findings:
    ready_s = trial.wait_ready()
    question = {"text_input": PROMPT, "max_tokens": 64, "stream": True}
    refused = trial.posted(UNLOAD)
    if refused != FORBIDDEN:
        raise TrialError(f"a stranger may unload a model: {UNLOAD} answered {refused}, not {FORBIDDEN}")
    answer = events(trial.asking(question).communicate(timeout=END_S_MAX)[0])
    client = trial.asking({**question, "max_tokens": 400, "ignore_eos": True})
    begun = first_line(client)
    begun_at = time.monotonic()
    status = trial.stop()
    stop_s = time.monotonic() - begun_at
    rest = events(begun + client.communicate(timeout=END_S_MAX)[0])
    if client.returncode or status:
        raise TrialError(
            f"stopped with status {status}, the open stream with {client.returncode}\n{trial.tail()}"
        )
    return Findings(
        round(build_s, 1),
        image_mib,
        round(ready_s, 1),
        text_of(answer),
        len(answer),
        len(rest),
        round(stop_s, 1),
        status,
    )


def say_size(image: Image) -> int:
    """MiB on disk of everything in the image, its base included."""
    words = ["du", "--summarize", "--one-file-system", "--block-size=1M", str(image.root)]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[0])


@contextmanager
def work_folder(options: argparse.Namespace) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="try-image-", dir=options.work))
    try:
        yield folder
    finally:
        if options.keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)


def arguments_of(options: argparse.Namespace) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in options.build_arg)


def shown(found: Findings) -> str:
    return "\n".join(
        [
            f"built in {found.build_s} s, {found.image_mib} MiB; ready after {found.ready_s} s",
            f"{PROMPT}",
            f"  -> {found.answer.strip()}   ({found.events} events)",
            f"SIGTERM with an open stream: {found.drained_events} events came, ended with "
            f"{found.exit_status} after {found.stop_s} s",
        ]
    )


def steps(file: Dockerfile) -> list[str]:
    return [
        f"[{stage.name or place}] {line}"
        for place, stage in enumerate(file.stages)
        for line in (f"FROM {stage.base}", *map(str, stage.instructions))
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """0: it answered and drained; 1: it did not; 2: it cannot be tried here."""
    options = _parser().parse_args(argv)
    try:
        file = parsed(options.file.read_text(), arguments_of(options))
        if options.dry_run:
            print(json.dumps(steps(file)) if options.json else "\n".join(steps(file)))
            return 0
        lacking = missing()
        if lacking:
            print("try_image: this machine cannot do it:\n" + "\n".join(lacking), file=sys.stderr)
            return 2
        with work_folder(options) as folder:
            found = tried(options, folder, file)
    except (BuildError, DockerfileError, TrialError, OSError) as error:
        print(f"try_image: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(found)) if options.json else shown(found))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.try_image",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--file", type=Path, default=DOCKERFILE, help="(default: docker/Dockerfile.cpu)")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--mirror", default="", help="Debian mirror (default: debootstrap's own)")
    parser.add_argument("--work", type=Path, help="folder to work in (default: the machine's temporary one)")
    parser.add_argument("--keep", action="store_true", help="leave the roots and the logs for a look")
    parser.add_argument("--dry-run", action="store_true", help="only print the steps")
    parser.add_argument("--json", action="store_true", help="findings for a program")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
