"""Every test runs without silent broadcasting of ranks. (Strict types would be next, but optax raises a float to
an integer power in Adam's bias correction.)
"""

import asyncio
import contextlib
import html
import importlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from asking import JSON
from own_problems import OPTIONS, Call, antiderivative

from trunkfirst.cli import console, run_command as main
from trunkfirst.data.read_write import write_data

# Nothing is written to the user's cache folder, by other processes neither.
os.environ["TRUNKFIRST_PROGRAM_CACHE"] = "off"
jax.config.update("jax_numpy_rank_promotion", "raise")
# Tests compile much and compute little, in other processes too.
jax.config.update("jax_disable_most_optimizations", True)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
# A compiled program takes about 2 MB. JAX keeps them all, which would be 5 GB a worker at the end.
_MOST_PROGRAMS = 400
# A shell starts commands in the background with Ctrl-C ignored, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# They send signals, set limits, or start several processes as Windows cannot.
_NOT_ON_WINDOWS = [
    "test_hostile.py",
    "test_launch.py",
    "test_resume.py",
    "test_server_process.py",
    "test_sweep.py",
]
collect_ignore = _NOT_ON_WINDOWS if sys.platform == "win32" else []


@contextlib.contextmanager
def without_reports() -> Generator[None]:
    """Reports are drawn, slowly, in other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "write_run_report", lambda folder, *_: Path(folder) / "report.html")
        yield


@pytest.fixture(scope="session")
def programs() -> Iterator[list[str]]:
    """What was compiled since programs were last dropped."""
    from helpers import compilations

    with compilations() as compiled:
        yield compiled


@pytest.fixture(scope="module", autouse=True)
def few_programs(programs: list[str]) -> Iterator[None]:
    """Keep the memory of a worker below about 2 GB."""
    yield
    if len(programs) > _MOST_PROGRAMS:
        jax.clear_caches()
        programs.clear()


@pytest.fixture(scope="module")
def no_report() -> Iterator[None]:
    with without_reports():
        yield


@pytest.fixture
def unrendered() -> Iterator[pytest.MonkeyPatch]:
    """Figures are drawn but not rendered, which takes most of the time of a report: their texts are written."""
    from matplotlib.text import Text

    def write_texts(figure: Any, file: Any, **_: Any) -> None:
        texts = {text.get_text() for text in figure.findobj(Text)}
        lines = "".join(f"<text>{html.escape(text)}</text>\n" for text in sorted(texts))
        file.write(f'<svg viewBox="0 0 1 1">{lines}</svg>'.encode())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", write_texts)
        yield patch


@pytest.fixture
def rendered(unrendered: pytest.MonkeyPatch) -> None:
    """For the tests of a module without rendering that look at figures."""
    unrendered.undo()


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command and return its exit code, standard output and standard error."""

    def go(*arguments: str | Path) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return go


@pytest.fixture(scope="session")
def first_fit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with training data, new samples and a first fit in `run`, made once a worker."""
    folder = tmp_path_factory.mktemp("own")
    write_data(antiderivative(40), folder / "train.npz")
    write_data(antiderivative(20, seed=1), folder / "new.npz")
    data = ["--data", str(folder / "train.npz"), "--out", str(folder / "run")]
    with without_reports():
        assert main(["fit", *data, *OPTIONS, "--quiet"]) == 0
    return folder


@pytest.fixture(scope="module")
def place(no_report: None, first_fit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first fit, for the tests of a file to do with as they please."""
    return shutil.copytree(first_fit, tmp_path_factory.mktemp("place") / "own")


@pytest.fixture(scope="session")
def server_bench() -> Any:
    """The benchmark of the server, which makes a run folder and asks without a socket."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
        bench: Any = importlib.import_module("fuzz_server")
    bench.SLOW = 60.0  # a busy machine is no fault of the server
    return bench


@pytest.fixture(scope="session")
def served_run(server_bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder for servers."""
    path = tmp_path_factory.mktemp("served")
    server_bench.make_run(path)
    return path


@pytest.fixture(scope="module")
def app(served_run: Path) -> Any:
    """The server of that folder, without a socket."""
    from trunkfirst.serve.app import make_app
    from trunkfirst.serve.requests import Limits

    return make_app(served_run, limits=Limits())


@pytest.fixture
def ask(app: Any, server_bench: Any) -> Any:
    """(status, headers, body) of a question."""

    def go(method: str, path: str, body: Any = b"", headers: Any = None, *, app: Any = app) -> Any:
        headers = (JSON if method == "POST" else []) if headers is None else headers
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        return asyncio.run(server_bench.ask(app, method, path, headers, sent))

    return go
