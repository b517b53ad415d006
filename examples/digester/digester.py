"""A toy anaerobic digester, standing for a simulator that imports slowly and prints a lot.

It takes part in a job as any program can: it reads JSON files from --input-dir, leaves results.json or error.json in
--output-dir, says how far it is on stdout, and ends with 0 or 1. Everything that it prints goes to the job's logs.

    digester.py size      input.json                -> the volume of a digester
    digester.py simulate  input.json, design.json   -> what that digester does over some days

Substrate and biomass are counted in kg of COD (chemical oxygen demand) per m3, so that what goes in has to come out again:
as substrate, as biomass or as methane.
"""

import argparse
import json
import math
import os
import pathlib
import sys
import time

GROWTH = 0.35  # 1/d, the most that the biomass grows
HALF_SATURATION = 3.0  # kg/m3 of substrate at which it grows half as fast
DECAY = 0.02  # 1/d
YIELD = 0.08  # kg of biomass from a kg of substrate
METHANE = 0.35  # m3 from a kg of COD
STEP = 0.002  # d


def patch_runtime():
    """What has to be set before heavy modules are imported, since they read it then: a job has one core."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def import_heavy_modules(seconds):
    """Stands for the imports of a scientific stack."""
    modules = ("flowsheet", "kinetics", "thermodynamics")
    for module in modules:
        print(json.dumps({"progress": 0, "message": f"importing {module}"}), flush=True)
        print(f"{module}: UserWarning: this stands for a slow import", file=sys.stderr, flush=True)
        time.sleep(seconds / len(modules))


def size(basis):
    """The volume in which the biomass has time to grow, with a margin."""
    flow, feed = basis["flow_m3_d"], basis["cod_kg_m3"]
    fastest = GROWTH * feed / (HALF_SATURATION + feed) - DECAY
    washout = 1 / fastest if fastest > 0 else math.inf
    retention = basis.get("target_srt_days", max(20.0, 2.5 * washout))
    if retention <= washout:
        raise ValueError(
            f"a retention time of {retention:g} d washes the biomass out: with {feed:g} kg/m3 it takes more than "
            f"{washout:.1f} d to grow"
        )
    return {
        "design": {
            "flow_m3_d": flow,
            "cod_kg_m3": feed,
            "srt_days": round(retention, 2),
            "volume_m3": round(flow * retention, 1),
            "load_kg_m3_d": round(feed / retention, 3),
        }
    }


def simulate(design, days):
    """Mass balance of a stirred tank, in steps of some minutes."""
    flow, feed, volume = design["flow_m3_d"], design["cod_kg_m3"], design["volume_m3"]
    exchange = flow / volume
    substrate, biomass = feed, 0.5
    stored_before = substrate + biomass
    out = methane = 0.0
    methane_before = 0.0
    steps = max(1, round(days / STEP))
    each_day = max(1, round(1 / STEP))
    series = []
    for step in range(1, steps + 1):
        growth = GROWTH * substrate / (HALF_SATURATION + substrate) * biomass
        decay = DECAY * biomass
        out += exchange * (substrate + biomass) * STEP
        methane += (growth * (1 / YIELD - 1) + decay) * STEP
        substrate += (exchange * (feed - substrate) - growth / YIELD) * STEP
        biomass += (growth - decay - exchange * biomass) * STEP
        if step % each_day == 0:
            day = step // each_day
            a_day = (methane - methane_before) * volume * METHANE
            methane_before = methane
            series.append({"day": day, "cod_kg_m3": round(substrate, 3), "methane_m3_d": round(a_day, 2)})
            print(f"day {day}: substrate {substrate:.3f}, biomass {biomass:.3f}, methane {a_day:.1f}")
            print(f"progress: {100 * step // steps}%", flush=True)
    fed = exchange * feed * steps * STEP
    rest = fed + stored_before - out - methane - substrate - biomass
    if not math.isfinite(rest) or abs(rest) > 1e-6 * (fed + stored_before):
        raise ArithmeticError(f"the mass balance does not close: {rest:g} kg/m3 are left over")
    last = series[-1]["methane_m3_d"] if series else 0.0
    return {
        "digester": {
            "volume_m3": volume,
            "methane_m3_d": last,
            "cod_removal_percent": round(100 * (1 - substrate / feed), 1),
        },
        "series": series,
    }


def read(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def write(folder, name, document):
    """Whole or not at all: whoever reads it never sees half of it."""
    temporary = folder / f".{name}.new"
    temporary.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(folder / name)


def main():
    parser = argparse.ArgumentParser(description="A toy anaerobic digester.")
    parser.add_argument("what", choices=["size", "simulate"])
    parser.add_argument("--input-dir", type=pathlib.Path, required=True)
    parser.add_argument("--output-dir", type=pathlib.Path, required=True)
    parser.add_argument("--days", type=float, default=60.0)
    parser.add_argument("--import-seconds", type=float, default=6.0)
    arguments = parser.parse_args()
    try:
        patch_runtime()
        import_heavy_modules(arguments.import_seconds)
        if arguments.what == "size":
            results = size(read(arguments.input_dir, "input.json"))
        else:
            results = simulate(read(arguments.input_dir, "design.json"), arguments.days)
        write(arguments.output_dir, "results.json", results)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        write(arguments.output_dir, "error.json", {"kind": type(error).__name__, "message": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
