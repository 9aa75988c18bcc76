"""`millstream pack`: packs an environment into one archive for the executors of a cluster, and prints how to use it.

The environment is the one that runs the command, or the packages of a requirements file, which are installed for this
purpose.
"""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from pathlib import Path

from millstream.cli.refusals import refuse
from millstream.errors import ConfigurationError, MillstreamError
from millstream.jobs.console.amounts import bytes_text

__all__ = ["pack_environment"]

_ENDINGS = (".tar.gz", ".tgz")


def pack_environment(output: Path, requirements: Path | None, *, with_python: bool) -> int:
    """Write the archive and print how to use it; returns the exit code."""
    try:
        if not output.name.endswith(_ENDINGS):
            raise ConfigurationError(f"-o {output}: found {output.name!r}, expected a name that ends with .tar.gz")
        if not output.absolute().parent.is_dir():
            raise ConfigurationError(
                f"-o {output}: the folder {output.absolute().parent} does not exist. Create it first"
            )
        with tempfile.TemporaryDirectory(prefix="millstream-pack-") as folder:
            _pack(output, requirements, Path(folder), with_python=with_python)
    except MillstreamError as error:
        return refuse(error)
    except OSError as error:
        return refuse(ConfigurationError(f"-o {output}: cannot be written ({error})"), 1)
    return 0


def _pack(output: Path, requirements: Path | None, folder: Path, *, with_python: bool) -> None:
    from millstream.spark.python_dependencies import install_packages
    from millstream.spark.shipping.environment_archive import environment_files, interpreter_files, write_environment

    if requirements is not None:
        install_packages(str(requirements), "", str(folder), subject="-r")
    files, versions, linked = environment_files(None if requirements is None else [str(folder)])
    if with_python:
        files |= interpreter_files()
    facts = {
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "platform": sysconfig.get_platform(),
        "packages": versions,
        "interpreter": with_python,
    }
    write_environment(output, files, facts)
    print(f"packed {len(versions)} packages into {output} ({bytes_text(output.stat().st_size)})", file=sys.stderr)
    if linked:
        print(
            f"left out, because they are links to their sources: {', '.join(linked)}. Modules that a program "
            "imports from them are sent with it",
            file=sys.stderr,
        )
    print(
        "Use it as follows:\n"
        "  millstream run --master spark://HOST:PORT \\\n"
        f"    -D spark.archives={output}#environment -D spark.pyspark.python=./environment/bin/python job.py",
        file=sys.stderr,
    )
