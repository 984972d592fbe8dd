"""Run acceptance cases against the real command and the real server: `cases.py FOLDER [ID…]`.

FOLDER holds `cases.jsonl` (one case a line: files, and steps or an action in words) and `materialize.py`, which lays a
case out on disk. Steps run as written. What a case asks for only in words is checked by a function of `case_checks.py`
that has its id. The variables VAULT_LSP_EMBEDDING and VAULT_LSP_MODEL_DIR hold for all cases but those that are about
models. Prints id, result and reason; exits 1 when a case fails.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from case_checks import CHECKS, NotRunError
from case_steps import Run, step
from client import FailedError, Json, environment, report

# The tests' tiny models and hub are used by the checks of models.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import git_checks  # noqa: F401 - these register their checks
import model_checks  # noqa: F401


def outcome(case: Json, make: Callable[[Json, str], str]) -> tuple[str, str, str]:
    """Lay out one case in a temporary folder and run it."""
    name = case["id"]
    if not case.get("steps") and name not in CHECKS:
        return name, "not run", "only words, and no check is written for them"
    folder = Path(tempfile.mkdtemp(prefix=f"case-{name}-")).resolve()
    run = None
    try:
        vault = Path(make(case, str(folder)))
        run = Run(case, vault, environment(folder / "index", folder / "bin"))
        for wanted in case.get("steps") or []:
            step(run, wanted)
        if name in CHECKS:
            CHECKS[name](run)
    except NotRunError as reason:
        return name, "not run", str(reason)
    except FailedError as reason:
        return name, "fail", str(reason)
    except Exception as error:  # noqa: BLE001  one case must not hide the others
        return name, "fail", f"{type(error).__name__}: {error}"
    else:
        return name, "pass", "" if name in CHECKS else "steps only"
    finally:
        if run is not None:
            run.close()
        subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print(__doc__)
        return 2
    folder, wanted = Path(arguments[0]), set(arguments[1:])
    spec = importlib.util.spec_from_file_location("materialize", folder / "materialize.py")
    assert spec is not None
    assert spec.loader is not None
    materialize = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(materialize)
    cases = [item for item in materialize.cases() if not wanted or item["id"] in wanted]
    return report([outcome(item, materialize.make) for item in cases])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
