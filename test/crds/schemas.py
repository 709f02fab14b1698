"""The operators' own schemas, which lie beside the repository, and what they have to say about a manifest."""

import copy
import importlib.util
import warnings
from functools import cache
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared"


def findings(crd_file_name, manifest):
    """
    Give what an API server with that CRD would refuse, drop, or call a duplicate: [(kind, path, text)].

    Skips the test where the folder with the schemas is absent, and only then.
    """
    if not (SHARED / "crds").is_dir():
        pytest.skip(f"the operators' schemas are not at {SHARED / 'crds'}")
    with warnings.catch_warnings():
        # The validator is not ours, and newer jsonschema has another name for what it uses.
        warnings.filterwarnings("ignore", "Accessing jsonschema.draft4_format_checker", DeprecationWarning)
        return _validator().crd_validate(_crd(crd_file_name), copy.deepcopy(manifest))


@cache
def _validator():
    spec = importlib.util.spec_from_file_location("crd_validate", SHARED / "tools" / "crd_validate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def _crd(file_name):
    return _validator().load_crd((SHARED / "crds" / file_name).read_text(encoding="utf-8"))
