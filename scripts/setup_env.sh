#!/usr/bin/env bash
# Makes an environment in which Ray, MLflow and DI-engine all work.
#
#   scripts/setup_env.sh [VENV]        default: .venv beside this script's folder
#
# Doing it again does nothing, unless what it installs has changed. Settings, all
# by environment variable:
#   TORCH    the torch requirement             (default: what was chosen last, else torch==2.13.0)
#   PYTHON   the interpreter to start from     (default: python3)
#   EXTRAS   the project's extras to install   (default: engine,searchers,dev)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${1:-$root/.venv}
torch=${TORCH:-$(cat "$venv/.ditk_ray_torch" 2>/dev/null || echo torch==2.13.0)}
python=${PYTHON:-python3}
extras=${EXTRAS:-engine,searchers,dev}
# DI-engine's own pins (wandb, setuptools, flask, werkzeug) break Ray's dashboard
# agent and MLflow's server. Its real needs are the project's `engine` extra.
engine="DI-engine==0.5.3"
# It would bring netifaces, which wants a compiler. Its real needs are in `searchers`.
bohb="hpbandster==0.7.4"

say() { printf '[setup] %s\n' "$*"; }

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  say "Python 3.11 or newer is needed; $python is $("$python" --version 2>&1). Set PYTHON=..."
  exit 2
}

stamp=$venv/.ditk_ray_setup
wanted=$({ echo "$root $torch $extras $engine $bohb"; "$python" --version;
  cat "$root/pyproject.toml" "$root/requirements/constraints.txt" "${BASH_SOURCE[0]}"; } | sha256sum)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
  say "$venv is up to date"
  exit 0
fi

started=$SECONDS
say "1/5 virtual environment in $venv ($("$python" --version))"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
# Twice quiet: errors are shown, warnings about mirrors and the like are not.
pip() { "$venv/bin/python" -m pip --disable-pip-version-check install --quiet --quiet "$@"; }
pip --upgrade pip

say "2/5 $torch (set TORCH=... for another)"
pip "$torch"

say "3/5 Ray, MLflow, the engine's needs, the project itself (the longest step: minutes)"
pip --constraint "$root/requirements/constraints.txt" --editable "${root}[$extras]"

case ",$extras," in
  *,engine,*)
    say "4/5 $engine without its pins"
    pip --no-deps "$engine"
    ;;
  *) say "4/5 no engine asked for" ;;
esac
case ",$extras," in *,searchers,*) pip --no-deps "$bohb" ;; esac

say "5/5 looking whether it all imports"
"$venv/bin/python" -W ignore - "$extras" <<'PY'
import importlib, sys

names = ["ray", "mlflow", "ditk_ray"] + (["torch", "ding"] if "engine" in sys.argv[1] else [])
names += ["hyperopt", "hpbandster", "nevergrad", "botorch"] if "searchers" in sys.argv[1] else []
for name in names:
    module = importlib.import_module(name)
    print(f"[setup]     {name} {getattr(module, '__version__', '')}")
PY
printf '%s\n' "$torch" > "$venv/.ditk_ray_torch"
printf '%s\n' "$wanted" > "$stamp"
say "done in $((SECONDS - started)) s; use it with: source $(realpath --relative-to=. "$venv")/bin/activate"
