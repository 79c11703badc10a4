#!/usr/bin/env python3
"""Exports the models of the zoo with both of PyTorch's exporters, each file with the truth about it beside it."""
import argparse
import contextlib
import copy
import fnmatch
import hashlib
import io
import json
import os
import sys
import traceback
import warnings
from dataclasses import dataclass

import numpy as np
import onnx
import torch
from torch import nn

import matching
import truth
from registry import BATCH, STEPS, Example, load

EXAMPLES = """examples:
  export.py --out files
  export.py --out files --models 'bert,gpt2,swin*' --forms dynamo.eval,dynamo.train
  export.py --out files --models big_bert --forms dynamo.eval --no-truth
  export.py --list
"""


@dataclass(frozen=True)
class Form:
    """How a file is made. In inference mode both exporters fold by default; in training mode neither does."""
    exporter: str  # legacy or dynamo
    training: bool  # the module's mode
    mode: str = "EVAL"  # of the legacy exporter
    fold: bool = True  # constant folding; of dynamo `optimize`


FORMS = {
    "legacy.eval": Form("legacy", False),
    "legacy.train": Form("legacy", True, "TRAINING", fold=False),
    "legacy.preserve": Form("legacy", False, "PRESERVE", fold=False),
    "dynamo.eval": Form("dynamo", False),
    "dynamo.train": Form("dynamo", True),
    "dynamo.raw": Form("dynamo", False, fold=False),
}
ALWAYS = ("legacy.eval", "legacy.train", "dynamo.eval", "dynamo.train")


def forms_of(example: Example) -> list[str]:
    return [form for form in FORMS if form in ALWAYS or form.split(".")[1] in example.forms]


# ---- the file

def export_legacy(module: nn.Module, example: Example, form: Form, path: str) -> str:
    names = list(example.inputs)
    axes = {name: {0: "batch"} for name in [*names, "output"]}
    torch.onnx.export(module, example.batch(0), path, dynamo=False, input_names=names, output_names=["output"],
                      dynamic_axes=axes, training=getattr(torch.onnx.TrainingMode, form.mode),
                      do_constant_folding=form.fold)
    return "symbolic"


def export_dynamo(module: nn.Module, example: Example, form: Form, path: str, external: bool) -> str:
    """With a symbolic batch, or with a fixed one where the model does not allow it; says which."""
    errors = []
    for batch in ("symbolic", "fixed"):
        shapes = tuple({0: torch.export.Dim("batch")} for _ in example.inputs) if batch == "symbolic" else None
        try:
            torch.onnx.export(module, example.batch(0), path, dynamo=True, input_names=list(example.inputs),
                              output_names=["output"], dynamic_shapes=shapes, optimize=form.fold, verbose=False,
                              external_data=external)
            return batch
        except Exception as error:  # whatever an exporter throws
            errors.append(error)
    raise errors[0]


def export(example: Example, form: Form, path: str, external: bool) -> str:
    """Says whether the batch is symbolic or fixed. Exporters print whole graphs when they fail."""
    module = copy.deepcopy(example.module).train(form.training)
    with contextlib.redirect_stdout(io.StringIO()):
        if form.exporter == "legacy":
            return export_legacy(module, example, form, path)
        return export_dynamo(module, example, form, path, external)


LONG_METADATA = ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.class_hierarchy", "namespace")


def without_long_metadata(nodes) -> None:
    """Stack traces name paths of the machine that exported; the others repeat name_scopes with classes."""
    for node in nodes:
        kept = [entry for entry in node.metadata_props if entry.key not in LONG_METADATA]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                without_long_metadata(attribute.g.node)


def make_small(path: str) -> None:
    model = onnx.load(path)
    without_long_metadata(model.graph.node)
    for function in model.functions:
        without_long_metadata(function.node)
    onnx.save(model, path)


# ---- the module that the file holds

def arrays(module: nn.Module, names: set[str]) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy() for name, p in truth.parameters_of(module).items() if name in names}


def folded_module(example: Example, tensors: dict[str, np.ndarray]) -> tuple[nn.Module, dict[str, str]]:
    """The module with what the exporter folded, and the names of what was folded, each with the layer that has it."""
    values = [matching.sorted_values(t) for t in tensors.values()]
    exact = {v.tobytes() for v in values}

    def is_there(parameter: torch.Tensor) -> bool:
        wanted = matching.sorted_values(parameter.detach().numpy())
        return wanted.tobytes() in exact or any(matching.are_near(v, wanted) for v in values)

    def is_exactly_there(parameter: torch.Tensor) -> bool:
        return matching.sorted_values(parameter.detach().numpy()).tobytes() in exact

    module, folded = copy.deepcopy(example.module), {}
    norms = [name for name, _ in module.named_parameters() if ".parametrizations." in name]
    # A fresh weight is that of a normalized one, too: where a part is missing, the file has the product.
    if not all(is_exactly_there(module.get_parameter(name)) for name in norms):
        module = truth.without_parametrizations(module)
        folded = {name: name.partition(".parametrizations.")[0] for name in norms}
    for linear, norm in truth.normalized_layers(example):
        candidate = copy.deepcopy(module)
        truth.fold(candidate, linear, norm)
        if not is_exactly_there(module.get_submodule(linear).weight) and \
                is_there(candidate.get_submodule(linear).weight):
            module = candidate
            folded[norm] = linear
    return module, folded


def uses_batch_statistics(path: str, form: Form, folded: dict[str, str]) -> bool:
    """What the file computes, with --train-mode where the form wants it: dynamo folds even in training mode."""
    if form.mode == "PRESERVE":
        return True
    nodes = [node for node in onnx.load(path, load_external_data=False).graph.node
             if node.op_type == "BatchNormalization"]
    if nodes:
        return any(a.name == "training_mode" and a.i == 1 for node in nodes for a in node.attribute)
    return form.training and not folded


def take_buffers(module: nn.Module, tensors: dict[str, np.ndarray]) -> None:
    """Running statistics may have moved while the exporter traced."""
    for name, buffer in module.named_buffers():
        if name in tensors and tensors[name].shape == tuple(buffer.shape):
            buffer.copy_(torch.from_numpy(tensors[name].copy()))


# ---- the truth

# Axis 0 of NAME.after.npy: the trainings after which it has the module's output. With the parameters that the file's
# tensors hold, in two types; also with the zeros that can come back; with all parameters.
AFTER = ("float64", "float32", "restored", "with_missing")


def summary(name: str, tensor: torch.Tensor) -> dict:
    values = matching.sorted_values(tensor.detach().double().numpy())
    return {"name": name, "shape": list(tensor.shape), "elements": tensor.numel(),
            "sorted_sha256": hashlib.sha256(values.tobytes()).hexdigest(),
            "least": float(values[0]) if values.size else 0, "greatest": float(values[-1]) if values.size else 0}


def finite(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)


def left_out(parameters: dict[str, torch.Tensor], names: list[str], there: set[str]) -> list[str]:
    """Of `names`, which no tensor holds: zeros that can come back, as the file knows their names (`there`).

    Not those of a layer whose weight was folded into something else: it is no node of the file."""
    def is_folded(name: str) -> bool:
        weight = name.rpartition(".")[0] + ".weight"
        return weight in names and bool((parameters[weight] != parameters[weight].flatten()[0]).any())

    return [name for name in names if name in there and not parameters[name].any() and not is_folded(name)]


def expectation(module: nn.Module, used: set[str], path: str, tensors: dict[str, np.ndarray],
                own: set[str]) -> dict:
    """By the file's own names: what must train, and what must not. `own`: the author's parameters."""
    holders = matching.find_holders(arrays(module, used), tensors, matching.modules_of_readers(path))
    parameters = truth.parameters_of(module)
    held = [name for name in used if name not in holders.missing]
    parts = {name: holders.tensors_of(name) for name in held}
    # Rows that are not used are not in the file.
    sizes = {name: min(parameters[name].numel(), sum(tensors[t].size for t in parts[name]))
             for name in sorted(held)}
    return {"elements": sum(sizes.values()), "sizes": sizes, "initializers": holders.parameters,
            "joined": sorted(holders.joined), "missing": holders.missing, "constants": sorted(holders.constants),
            # Zeros of the author's that an exporter left out.
            "left_out": left_out(parameters, holders.missing, matching.names_in(path) & own),
            "derived": {tensor: names for tensor, names in sorted(holders.derived.items())},
            "not_finite": sorted(t for t, a in tensors.items() if not np.isfinite(a).all())}


def train_flags(example: Example, form: Form) -> list[str]:
    flags = ["--loss", example.loss, "--lr", str(example.learning_rate)]
    if example.class_axis != -1:
        flags += ["--class-axis", str(example.class_axis)]
    if form.mode == "PRESERVE" and truth.has_batch_norm(example.module):
        flags += ["--train-mode", "*"]
    return flags


def statement(example: Example, form: Form, path: str) -> dict:
    tensors = matching.float_tensors(path)
    module, folded = folded_module(example, tensors)
    take_buffers(module, tensors)
    training = truth.has_batch_norm(module) and uses_batch_statistics(path, form, folded)
    used = truth.used_parameters(example, module.train(training))
    trainings = {"with_missing": truth.train(example, module, torch.float64, training)}
    own = {name for name, _ in example.module.named_parameters()}
    expected = expectation(module, used, path, tensors, own)
    for name in set(expected["missing"]) - set(expected["left_out"]):  # the file cannot train them
        module.get_parameter(name).requires_grad_(False)
    trainings["restored"] = truth.train(example, module, torch.float64, training)
    for name in expected["left_out"]:
        module.get_parameter(name).requires_grad_(False)
    for dtype in (torch.float64, torch.float32):
        trainings[str(dtype)[6:]] = truth.train(example, module, dtype, training)
    np.save(path[:-5] + ".after.npy", np.stack([trainings[name].output.float().numpy() for name in AFTER]))
    parameters = truth.parameters_of(module)
    model = onnx.load(path, load_external_data=False)
    return {
        "parameters": [{**summary(name, p), "used": name in used} for name, p in parameters.items()],
        "buffers": [{**summary(name, b), "least": finite(float(b.min())), "greatest": finite(float(b.max()))}
                    for name, b in module.named_buffers() if b.is_floating_point() and b.numel()],
        "ties": truth.ties_of(module), "folded": list(folded), "folded_into": folded,
        "batch_norm": truth.has_batch_norm(module), "training": training,
        "expected": expected,
        "curve": {name: training.losses for name, training in trainings.items()},
        "after": os.path.basename(path)[:-5] + ".after.npy",
        "opset": max(o.version for o in model.opset_import if o.domain in ("", "ai.onnx")),
        "external": any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer),
    }


def write_data(name: str, example: Example, out: str) -> dict:
    files = {}
    for key, tensor in example.inputs.items():
        files[key] = f"{name}.{key}.npy"
        np.save(os.path.join(out, files[key]), tensor.numpy())
    np.save(os.path.join(out, f"{name}.labels.npy"), example.labels.numpy())
    return {"data": files, "labels": f"{name}.labels.npy", "batch": BATCH, "steps": STEPS, "loss": example.loss,
            "class_axis": example.class_axis, "learning_rate": example.learning_rate,
            "transformer": example.transformer}


def write_file(name: str, kind: str, example: Example, arguments: argparse.Namespace) -> None:
    form = FORMS[kind]
    path = os.path.join(arguments.out, f"{name}.{kind}.onnx")
    if arguments.truth:
        with open(path[:-5] + ".json") as file:
            batch = json.load(file)["batch_axis"]
    else:
        batch = export(example, form, path, external=not arguments.embed)
    if arguments.embed:
        make_small(path)
    record = {"model": name, "form": kind, "torch": torch.__version__, "batch_axis": batch,
              **write_data(name, example, arguments.out), "flags": train_flags(example, form)}
    if not arguments.no_truth:
        record.update(statement(example, form, path))
    with open(path[:-5] + ".json", "w") as file:
        json.dump(record, file, indent=1, allow_nan=False)
        file.write("\n")


# ---- all of them

def selected(arguments: argparse.Namespace, registry) -> list[str]:
    patterns = arguments.models.split(",")
    known = list(registry.makers) + list(registry.large)
    names = [name for pattern in patterns for name in known if fnmatch.fnmatch(name, pattern)
             and (name in registry.makers or name == pattern)]
    return list(dict.fromkeys(names))


def root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    text = (str(error).strip().splitlines() or [""])[0][:300]
    return f"{type(error).__name__}: {text}"


def run(name: str, registry, arguments: argparse.Namespace) -> dict[str, str | None]:
    """Why each file that was tried could not be written."""
    failures = {}
    try:
        example = registry.make(name)
    except Exception as error:
        print(f"{name}: {root_cause(error)}", flush=True)
        return {name: root_cause(error)}
    for kind in forms_of(example):
        path = os.path.join(arguments.out, f"{name}.{kind}.json")
        wanted = any(fnmatch.fnmatch(text, pattern) for pattern in arguments.forms.split(",")
                     for text in (kind, f"{name}.{kind}"))
        if not wanted or os.path.exists(path) != arguments.truth and not arguments.again:
            continue
        try:
            failures[f"{name}.{kind}"] = None
            write_file(name, kind, example, arguments)
        except Exception as error:  # an exporter that cannot is a fact about the exporter
            failures[f"{name}.{kind}"] = root_cause(error)
            if arguments.trace:
                traceback.print_exc()
            for ending in () if arguments.truth else (".onnx", ".onnx.data", ".json", ".after.npy"):
                if os.path.exists(path[:-5] + ending):
                    os.remove(path[:-5] + ending)
        print(f"{name}.{kind}: {failures[f'{name}.{kind}'] or 'written'}", flush=True)
    return failures


def record_failures(path: str, new: dict[str, str | None]) -> None:
    """None: no failure any more. Another process may write the same file."""
    failures = {}
    if os.path.exists(path):
        with open(path) as file:
            failures = json.load(file)
    failures.update(new)
    with open(path, "w") as file:
        json.dump({key: why for key, why in sorted(failures.items()) if why}, file, indent=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="files", help="folder for the files (default: files)")
    parser.add_argument("--models", default="*", help="names or patterns, joined by commas; large ones by name only")
    parser.add_argument("--forms", default="*", help="forms, MODEL.form or patterns, joined by commas")
    parser.add_argument("--embed", action="store_true",
                        help="weights inside the .onnx file, where dynamo puts them beside; less metadata")
    parser.add_argument("--truth", action="store_true", help="export nothing, write the truth of files that are there")
    parser.add_argument("--no-truth", action="store_true", help="no parameters and curves: for large models")
    parser.add_argument("--again", action="store_true", help="also files that are there")
    parser.add_argument("--trace", action="store_true", help="print where an exporter failed")
    parser.add_argument("--list", action="store_true", help="print the names of the models, and stop")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    registry = load()
    if arguments.list:
        print("\n".join([*registry.makers, *registry.large]))
        return 0
    os.makedirs(arguments.out, exist_ok=True)
    for name in selected(arguments, registry):
        record_failures(os.path.join(arguments.out, "failures.json"), run(name, registry, arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
