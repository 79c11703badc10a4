"""Finds the tensors of an ONNX file that hold a module's parameters, whatever exporters did to their order."""
import ast
import re
from dataclasses import dataclass, field
from typing import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16}


def tensors_of_graph(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Initializers and constants, also those of subgraphs."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from tensors_of_graph(attribute.g)
            if node.op_type == "Constant" and attribute.name == "value":
                yield node.output[0], attribute.t


def float_tensors(path: str) -> dict[str, np.ndarray]:
    model = onnx.load(path)
    return {name: numpy_helper.to_array(tensor) for name, tensor in tensors_of_graph(model.graph)
            if tensor.data_type in FLOATS}


def names_in(path: str) -> set[str]:
    """Of values of the file, and in torch.export's list of parameters, which files of TorchScript lack."""
    model = onnx.load(path, load_external_data=False)
    texts = [entry.value for entry in [*model.graph.metadata_props, *model.metadata_props]
             if entry.key.endswith("graph_signature")]
    names = set(re.findall(r"target='([^']+)'", "\n".join(texts)))
    return names.union(*(node.output for node in model.graph.node))


STATISTICS = {("BatchNormalization", 3), ("BatchNormalization", 4)}  # inputs that hold no parameter
MOVES = {"Identity", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Cast"}


def module_of(node: onnx.NodeProto) -> str:
    """The module that made the node: as torch.export writes it, or in TorchScript's names of nodes."""
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.name_scopes":
            scopes = ast.literal_eval(entry.value)
            return scopes[-2].partition("@")[0] if len(scopes) > 1 else ""
    if not node.name.startswith("/"):
        return ""
    path: list[str] = []
    for part in node.name.split("/")[1:-1]:
        if path and part.startswith(path[-1] + "."):  # an entry of a list repeats the list's name
            path.pop()
        path.append(part)
    return ".".join(path)


def modules_of_readers(path: str) -> dict[str, set[str]]:
    """By tensor: the modules of the nodes that compute with it; running statistics do not count."""
    graph = onnx.load(path, load_external_data=False).graph
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in graph.node:
        for i, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, i))
    names = [t.name for t in graph.initializer] + [n.output[0] for n in graph.node if n.op_type == "Constant"]
    modules: dict[str, set[str]] = {}
    for tensor in names:
        found, seen, stack = set(), {tensor}, [tensor]
        while stack:
            for node, i in readers.get(stack.pop(), []):
                if (node.op_type, i) in STATISTICS:
                    continue
                found.add(module_of(node))
                if node.op_type in MOVES and node.output[0] not in seen:
                    seen.add(node.output[0])
                    stack.append(node.output[0])
        modules[tensor] = found
    return modules


def is_in(parameter: str, module: str) -> bool:
    """Whether the parameter is the module's, or that of a part that the module computes with itself."""
    begin = module + "." if module else ""
    return parameter.startswith(begin) and parameter[len(begin):].count(".") <= 1


def sorted_values(array: np.ndarray) -> np.ndarray:
    """The same for a tensor, its transposition, another shape of it and another order of its gates."""
    return np.sort(np.asarray(array, np.float32), axis=None)


def long_axes(array: np.ndarray) -> tuple[int, ...]:
    return tuple(extent for extent in array.shape if extent != 1)


def is_constant(values: np.ndarray) -> bool:
    return values.size > 0 and values[0] == values[-1]


def are_near(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether an exporter computed one from the other's source, in another order; both sorted."""
    return first.size == second.size and np.allclose(first, second, rtol=2e-6, atol=1e-9)


def contains(large: np.ndarray, small: np.ndarray) -> bool:
    """Whether all of `small`, as often as they occur, are in `large`; both sorted."""
    values, counts = np.unique(small, return_counts=True)
    there = np.searchsorted(large, values, "right") - np.searchsorted(large, values, "left")
    return bool((there >= counts).all())


@dataclass
class Holders:
    """Which tensors of a file hold which parameters."""
    # A tensor with several parameters: exporters merged equal ones, or joined them (see `joined`).
    parameters: dict[str, list[str]] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)  # tensors that are parameters side by side
    missing: list[str] = field(default_factory=list)  # parameters that no tensor holds
    constants: list[str] = field(default_factory=list)  # tensors that hold no parameter
    # Parameters that a tensor holds with 1 added: it trains as they do.
    shifted: set[str] = field(default_factory=set)
    # Tensors that an exporter computed from lost parameters: to train them is the next best.
    derived: dict[str, list[str]] = field(default_factory=dict)

    def tensors_of(self, parameter: str) -> list[str]:
        return [tensor for tensor, names in self.parameters.items() if parameter in names]


class Finder:
    def __init__(self, parameters: dict[str, np.ndarray], tensors: dict[str, np.ndarray],
                 readers: dict[str, set[str]]):
        self.readers = readers
        self.shapes = {name: array.shape for name, array in [*parameters.items(), *tensors.items()]}
        self.extents = {name: long_axes(array) for name, array in [*parameters.items(), *tensors.items()]}
        self.wanted = {name: sorted_values(p) for name, p in parameters.items()}
        self.there = {name: sorted_values(t) for name, t in tensors.items()}
        self.holders = Holders()

    def find(self) -> Holders:
        self.by_name()
        self.by_value()
        self.nearly()
        self.shifted()
        self.joined()
        self.in_parts()
        self.copies()
        self.derived()
        self.holders.missing = self.left()
        self.holders.constants = [t for t in self.there if t not in self.holders.parameters]
        return self.holders

    def left(self) -> list[str]:
        held = {name for names in self.holders.parameters.values() for name in names}
        return [name for name in self.wanted if name not in held]

    def free(self) -> list[str]:
        return [t for t in self.there if t not in self.holders.parameters]

    def hold(self, tensor: str, parameter: str) -> None:
        self.holders.parameters.setdefault(tensor, []).append(parameter)

    def by_name(self) -> None:
        for name, values in self.wanted.items():
            if name in self.there and self.there[name].size == values.size:
                self.hold(name, name)

    def by_value(self) -> None:
        """Equal values: of a tensor that is nobody's by name first, else of one that was merged."""
        index: dict[bytes, list[str]] = {}
        for tensor, values in self.there.items():
            index.setdefault(values.tobytes(), []).append(tensor)
        for name in self.left():
            equal = [t for t in index.get(self.wanted[name].tobytes(), []) if self.may_hold(t, name)]
            free = [t for t in equal if t not in self.holders.parameters]
            if free or equal:
                self.hold((free or equal)[0], name)

    def may_hold(self, tensor: str, parameter: str) -> bool:
        """Equal elements say nothing: a bias of zeros may be left out, while another one stays."""
        if not is_constant(self.wanted[parameter]):
            return True
        modules = self.readers.get(tensor, set())
        # Exporters merge tensors of one shape alone: a token of zeros [1,1,D] is no bias [D].
        is_another = tensor in self.wanted and self.shapes[tensor] != self.shapes[parameter]
        return not is_another and self.extents[tensor] == self.extents[parameter] and \
            (not any(modules) or any(is_in(parameter, module) for module in modules))

    def nearly(self) -> None:
        """Computed by the exporter in another order: equal to rounding."""
        for name in self.left():
            values = self.wanted[name]
            for tensor in self.free():
                there = self.there[tensor]
                if values.size > 1 and are_near(there, values):
                    self.hold(tensor, name)
                    break

    def shifted(self) -> None:
        """A scale of which the module stores what it is more than 1: the exporter adds the 1."""
        for name in self.left():
            for tensor, there in self.there.items():
                fits = self.extents[tensor] == self.extents[name] and are_near(there, self.wanted[name] + 1)
                held = self.holders.parameters.get(tensor, [])
                if fits and self.may_hold(tensor, name) and all(other in self.holders.shifted for other in held):
                    self.hold(tensor, name)
                    self.holders.shifted.add(name)
                    break

    def joined(self) -> None:
        """A tensor that is several parameters side by side, as the biases of an LSTM."""
        for tensor in self.free():
            there = self.there[tensor]
            names, size = [], 0
            for name in self.left():
                values = self.wanted[name]
                if size + values.size <= there.size and values.size > 1 and contains(there, values):
                    names.append(name)
                    size += values.size
            if names and size == there.size:
                self.holders.joined.add(tensor)
                for name in names:
                    self.hold(tensor, name)

    def in_parts(self) -> None:
        """A parameter of which tensors hold parts: rows that are used, heads."""
        for name in self.left():
            values = self.wanted[name]
            for tensor in self.free():
                there = self.there[tensor]
                if 1 < there.size < values.size and not is_constant(there) and contains(values, there):
                    self.hold(tensor, name)

    def copies(self) -> None:
        """Further tensors with the values of a parameter: an exporter that transposed a tied one."""
        owners = {self.wanted[name].tobytes(): name for name in self.wanted if not is_constant(self.wanted[name])}
        for tensor in self.free():
            name = owners.get(self.there[tensor].tobytes())
            if name is not None:
                self.hold(tensor, name)


    def derived(self) -> None:
        """What an exporter computed from parameters that are nowhere else, in their module."""
        lost = self.left()
        for tensor in self.free():
            values = self.there[tensor]
            modules = self.readers.get(tensor, set())
            sources = [name for name in lost if any(is_in(name, module) for module in modules) and
                       self.may_come_from(tensor, name)]
            if sources and values.size and np.isfinite(values).all():
                self.holders.derived[tensor] = sources

    def may_come_from(self, tensor: str, parameter: str) -> bool:
        """Equal elements can be anything's; but an exponential says of which logarithms it is."""
        values, there = self.wanted[parameter], self.there[tensor]
        if is_constant(values) or is_constant(there):
            return self.shapes[tensor] == self.shapes[parameter] and values.any() and \
                are_near(there, np.exp(values))
        return True


def find_holders(parameters: dict[str, np.ndarray], tensors: dict[str, np.ndarray],
                 readers: dict[str, set[str]]) -> Holders:
    return Finder(parameters, tensors, readers).find()
